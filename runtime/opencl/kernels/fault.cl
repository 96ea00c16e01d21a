// How a kernel reports an index out of range: into the queue's fault record (see Queue::faultRecord). The first one wins.
// A size below 0 says that `what` names no operator but is the whole sentence to report.
static void badIndex(volatile global int* fault, long index, long size, long what) {
  if (atomic_cmpxchg(fault, 0, 1) != 0) return;
  volatile global long* record = (volatile global long*)fault;
  record[1] = index;
  record[2] = size;
  record[3] = what;
}
