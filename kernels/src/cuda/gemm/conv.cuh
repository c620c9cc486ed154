// Sizes of a convolution x [N,H,W,C] * w [K,R,S,C] -> y [N,P,Q,K], and positions in it.
#pragma once
#include "platform.cuh"

struct Conv {
  static constexpr bool GROUPED = false;
  int images, height, width, channels;           // N, H, W, C
  int filters, kernel_h, kernel_w, stride, pad;  // K, R, S
  int out_height, out_width;                     // P, Q
  DEVICE int filter_len() const { return kernel_h * kernel_w * channels; }
  DEVICE int group_channels() const { return channels; }
  DEVICE int group_filters() const { return filters; }
  // Elements per row of the output gradient; if `padded`, rows are padded to whole chunks.
  DEVICE int gradient_pitch(bool padded) const {
    return padded ? ceil_div(filters, 8) * 8 : filters;
  }
};
static_assert(sizeof(Conv) == 44, "eleven ints");

// A convolution with `dilation` rows or columns between adjacent taps, whose filters w [K,R,S,C /
// groups] read only the channels of their group. A single group may have any size; if there are
// several, the channels and the filters of each are multiples of 64, so that a tile is within one
// group.
struct GroupedConv : Conv {
  static constexpr bool GROUPED = true;
  int dilation, groups;
  DEVICE int gap() const { return dilation - 1; }
  DEVICE int filter_len() const { return kernel_h * kernel_w * group_channels(); }
  DEVICE int group_channels() const { return channels / groups; }
  DEVICE int group_filters() const { return filters / groups; }
};
static_assert(sizeof(GroupedConv) == 52, "thirteen ints");

// Division by a number that the host prepared: q = high word of n * magic, shifted. Exact for 0 <=
// n < 2^31, where magic = ceil(2^(32 + shift) / divisor) and 2^(shift + 1) >= divisor.
struct Divisor {
  unsigned divisor, magic, shift;
  DEVICE int quotient(int n, int& rest) const {
    const unsigned q = divisor == 1 ? (unsigned)n : __umulhi((unsigned)n, magic) >> shift;
    rest = n - (int)(q * divisor);
    return (int)q;
  }
};
static_assert(sizeof(Divisor) == 12, "three ints");

// One kernel dimension of a residue class: the `extent` input positions `first + i * stride` are
// reached only by the `taps` taps `tap + j * stride`; position i and tap j contribute to output i +
// reach - j.
struct ResidueAxis {
  int tap, taps, first, extent, reach;
  DEVICE ResidueAxis(int residue, int stride, int pad, int kernel, int input) : tap(residue) {
    taps = residue < kernel ? ceil_div(kernel - residue, stride) : 0;
    first = (residue + stride - pad % stride) % stride;
    extent = first < input ? ceil_div(input - first, stride) : 0;
    reach = (first + pad - residue) / stride;
  }
};

// Taps of a kernel, or of one of its residue classes. k_blocks() is their number of k-blocks of
// `depth` values, with `channels` values per tap; if `aligned`, each tap starts a new k-block.
struct Taps {
  int rows, columns;
  DEVICE int k_blocks(int channels, int depth, bool aligned) const {
    return aligned ? rows * columns * ceil_div(channels, depth)
                   : ceil_div(rows * columns * channels, depth);
  }
};

// The number of images in use; all of them if there is no count.
DEVICE int used_images(const int* count, int all) {
  return count ? max(0, min(*count, all)) : all;
}

// The k-blocks of split blockIdx.z of gridDim.z: an even share of `k_blocks`, in order.
struct Share {
  int first, len;
};
DEVICE Share share_of(int k_blocks) {
  const int each = ceil_div(k_blocks, (int)gridDim.z);
  const int first = min((int)blockIdx.z * each, k_blocks);
  return {first, min(each, k_blocks - first)};
}
