// Storage kinds and their conversions. A kernel text defines S (scalar compute type), T (S, or a vector of 16 S when
// WIDE), TS (their type suffix for convert_*), then uses LOAD(kind) and STORE(kind) macros: LD1_kind / ST1_kind for one
// element, LDV_kind / STV_kind for 16 neighbours. float16 and bfloat16 load as float; bfloat16 and float16 stores round
// half to even; bool stores "not zero". Pointer types are PTR_kind.
#pragma OPENCL EXTENSION cl_khr_byte_addressable_store : enable
#ifdef NEED_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif

#define CAT2_(a, b) a##b
#define CAT2(a, b) CAT2_(a, b)
#define CAT3_(a, b, c) a##b##c
#define CAT3(a, b, c) CAT3_(a, b, c)

#define PTR_f32 float
#define PTR_f64 double
#define PTR_f16 half
#define PTR_bf16 ushort
#define PTR_i8 char
#define PTR_i16 short
#define PTR_i32 int
#define PTR_i64 long
#define PTR_u8 uchar
#define PTR_u16 ushort
#define PTR_u32 uint
#define PTR_u64 ulong
#define PTR_b8 uchar

static ushort toBf16(float x) {
  const uint u = as_uint(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? (ushort)0x7fc0 : (ushort)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
static ushort16 toBf16v(float16 x) {
  const uint16 u = as_uint16(x);
  const uint16 r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return convert_ushort16((u & 0x7fffffffu) > (uint16)(0x7f800000u) ? (uint16)(0x7fc0u) : r);
}

#define LD1_f32(p, i) ((p)[i])
#define LD1_f64(p, i) ((p)[i])
#define LD1_f16(p, i) vload_half((i), (p))
#define LD1_bf16(p, i) as_float((uint)(p)[i] << 16)
#define LD1_i8(p, i) ((p)[i])
#define LD1_i16(p, i) ((p)[i])
#define LD1_i32(p, i) ((p)[i])
#define LD1_i64(p, i) ((p)[i])
#define LD1_u8(p, i) ((p)[i])
#define LD1_u16(p, i) ((p)[i])
#define LD1_u32(p, i) ((p)[i])
#define LD1_u64(p, i) ((p)[i])
#define LD1_b8(p, i) ((p)[i])

#define LDV_f32(p, i) vload16(0, (p) + (i))
#define LDV_f64(p, i) vload16(0, (p) + (i))
#define LDV_f16(p, i) vload_half16(0, (p) + (i))
#define LDV_bf16(p, i) as_float16(convert_uint16(vload16(0, (p) + (i))) << 16)
#define LDV_i8(p, i) vload16(0, (p) + (i))
#define LDV_i16(p, i) vload16(0, (p) + (i))
#define LDV_i32(p, i) vload16(0, (p) + (i))
#define LDV_i64(p, i) vload16(0, (p) + (i))
#define LDV_u8(p, i) vload16(0, (p) + (i))
#define LDV_u16(p, i) vload16(0, (p) + (i))
#define LDV_u32(p, i) vload16(0, (p) + (i))
#define LDV_u64(p, i) vload16(0, (p) + (i))
#define LDV_b8(p, i) vload16(0, (p) + (i))

// Narrow integers go through int, so that a float out of range wraps as it does on the host instead of being undefined.
#define ST1_f32(v, p, i) ((p)[i] = convert_float(v))
#define ST1_f64(v, p, i) ((p)[i] = convert_double(v))
#define ST1_f16(v, p, i) vstore_half_rte(convert_float(v), (i), (p))
#define ST1_bf16(v, p, i) ((p)[i] = toBf16(convert_float(v)))
#define ST1_i8(v, p, i) ((p)[i] = convert_char(convert_int(v)))
#define ST1_i16(v, p, i) ((p)[i] = convert_short(convert_int(v)))
#define ST1_i32(v, p, i) ((p)[i] = convert_int(v))
#define ST1_i64(v, p, i) ((p)[i] = convert_long(v))
#define ST1_u8(v, p, i) ((p)[i] = convert_uchar(convert_int(v)))
#define ST1_u16(v, p, i) ((p)[i] = convert_ushort(convert_int(v)))
#define ST1_u32(v, p, i) ((p)[i] = convert_uint(convert_long(v)))
#define ST1_u64(v, p, i) ((p)[i] = convert_ulong(convert_long(v)))
#define ST1_b8(v, p, i) ((p)[i] = (uchar)((v) != 0))

#define STV_f32(v, p, i) vstore16(convert_float16(v), 0, (p) + (i))
#define STV_f64(v, p, i) vstore16(convert_double16(v), 0, (p) + (i))
#define STV_f16(v, p, i) vstore_half16_rte(convert_float16(v), 0, (p) + (i))
#define STV_bf16(v, p, i) vstore16(toBf16v(convert_float16(v)), 0, (p) + (i))
#define STV_i8(v, p, i) vstore16(convert_char16(convert_int16(v)), 0, (p) + (i))
#define STV_i16(v, p, i) vstore16(convert_short16(convert_int16(v)), 0, (p) + (i))
#define STV_i32(v, p, i) vstore16(convert_int16(v), 0, (p) + (i))
#define STV_i64(v, p, i) vstore16(convert_long16(v), 0, (p) + (i))
#define STV_u8(v, p, i) vstore16(convert_uchar16(convert_int16(v)), 0, (p) + (i))
#define STV_u16(v, p, i) vstore16(convert_ushort16(convert_int16(v)), 0, (p) + (i))
#define STV_u32(v, p, i) vstore16(convert_uint16(convert_long16(v)), 0, (p) + (i))
#define STV_u64(v, p, i) vstore16(convert_ulong16(convert_long16(v)), 0, (p) + (i))
#define STV_b8(v, p, i) vstore16(convert_uchar16(((v) != (T)(0)) & 1), 0, (p) + (i))

#define CONV1(x) CAT2(convert_, S)(x)
#define CONVV(x) CAT3(convert_, S, 16)(x)
