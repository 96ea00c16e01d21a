// Candidates: what could run a call. One file per family holds its rows and its count of work; catalog.cpp lists them.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kde/facts.h"
#include "runtime/kde/router.h"

namespace flagos::kde {

// How the candidate is built, for the efficiency table. library: somebody else's kernels, which only a rule chooses.
enum class Shape : uint8_t { wide, tiled, library, host, fallback };

// Work of one call as the cost model counts it; < 0 = unknown, and `why` says what is missing.
struct Work {
  double flops = -1, bytes = -1;
  int launches = 1;
  std::string why;
  bool known() const noexcept { return flops >= 0 && bytes >= 0; }
};

struct CandidateRow {
  std::string_view name;        // "opencl.gemm.wide"
  Family family = Family::other;  // other: any operator
  Shape shape = Shape::wide;
  std::string_view constraint;  // the predicate as a person reads it
};

// What a family adds beyond names: limits of its template, its count of work.
struct FamilyRow {
  Family family;
  int min_rank, max_rank;       // of the operands that are tensors
  bool bit_equal;               // every candidate gives the same bits: the state of the queue may choose
  bool mixed_dtypes;            // operands of other dtypes are normal (indices, targets, conditions, casts)
  Work (*work)(const Facts&);
};

std::span<const CandidateRow> candidates() noexcept;                 // CandidateId i is row i - 1
const CandidateRow& candidate(CandidateId) noexcept;                 // id must be valid
const FamilyRow& familyRow(Family) noexcept;
std::vector<std::string> candidateNames();

// Why this candidate cannot run the call on this device at all (rules and switches apart); "" if it can.
std::string whyIllegal(const CandidateRow&, const Facts&);
// The operands that its constraint read, for explain.
std::vector<Field> constraintFields(const CandidateRow&, const Facts&);

// Per family file.
extern const FamilyRow kPointwiseFamily, kReduceFamily, kGemmFamily, kConvFamily, kPoolFamily, kSoftmaxFamily, kLossFamily,
    kCopyFamily, kFillFamily, kRandomFamily, kIndexFamily, kForeachFamily, kNormFamily,
    kAttentionFamily, kResampleFamily, kComposedFamily, kOtherFamily;

// Helpers of the family files.
Work unknownWork(const Facts&, Field missing);
Work streaming(const Facts&, double flops_per_element, double passes = 1, int launches = 1);

}  // namespace flagos::kde
