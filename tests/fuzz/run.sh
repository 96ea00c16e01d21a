#!/usr/bin/env bash
# run.sh [NAME] [SECONDS]: builds the fuzz targets with clang and address sanitizer and runs one or all of them. A crash
# leaves its input in build-fuzz/crashes and ends with exit code 1.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
name=${1:-all}
seconds=${2:-60}
targets="rules frames params edits bodies positions notebook analysis snapshot fingerprints devices"
if [ "$name" != all ]; then
  case " $targets " in *" $name "*) targets=$name ;; *) echo "fuzz: no target '$name'; there are: $targets" >&2; exit 2 ;; esac
fi
command -v clang++ >/dev/null || { echo "fuzz: clang++ is missing: apt-get install clang libclang-rt-dev (Debian 12: libclang-rt-14-dev)" >&2; exit 2; }
flags="-fsanitize=fuzzer-no-link,address -fno-omit-frame-pointer"
cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
  -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" -DFLAGOS_TORCH=OFF -DFLAGOS_OPENCL=OFF -DFLAGOS_GUI=OFF -DFLAGOS_TESTS=OFF -DFLAGOS_FUZZ=ON >/dev/null
mkdir -p build-fuzz/crashes
for target in $targets; do
  ninja -C build-fuzz "fuzz_$target" | tail -n 1
  mkdir -p "build-fuzz/corpus/$target"
  echo "fuzz: $target for $seconds s"
  ./build-fuzz/fuzz/fuzz_"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -artifact_prefix=build-fuzz/crashes/"$target"- \
    -print_final_stats=1 "build-fuzz/corpus/$target" 2>&1 | tail -n 12
done
