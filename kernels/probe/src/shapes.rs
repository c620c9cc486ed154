//! The convolutions that the variants run: four of the step, and small ones for tests.

/// A forward convolution `x [N,H,W,C] * w [K,R,R,C] -> y [N,P,Q,K]` with its epilogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// How the command line names it.
    pub name: &'static str,
    /// Where in the step it stands.
    pub node: &'static str,
    /// N.
    pub images: usize,
    /// H.
    pub height: usize,
    /// W.
    pub width: usize,
    /// C.
    pub channels: usize,
    /// K.
    pub filters: usize,
    /// R = S.
    pub kernel: usize,
    /// Step between windows, both axes.
    pub stride: usize,
    /// Zeros around the map, both axes.
    pub pad: usize,
    /// There is a factor of each output channel.
    pub scale: bool,
    /// There is a summand of each output element.
    pub residual: bool,
    /// Negative results become 0.
    pub relu: bool,
}

/// No padding, stride 1, bias alone; the examples below say what differs.
const PLAIN: Shape = Shape {
    name: "",
    node: "",
    images: 12,
    height: 1,
    width: 1,
    channels: 64,
    filters: 256,
    kernel: 1,
    stride: 1,
    pad: 0,
    scale: false,
    residual: false,
    relu: false,
};

/// Of the step of `torchvision_r50` at 12 images of 800x1344, as `onegraph inspect program` lists
/// it: the largest 3x3, a 1x1 with residual that memory bounds and one that it nearly does, and one
/// of few tiles.
pub const STEP: [Shape; 4] = [
    Shape {
        name: "fpn_p2",
        node: "fpn.output on P2 (64), and the RPN head there (70)",
        height: 200,
        width: 336,
        channels: 256,
        kernel: 3,
        pad: 1,
        ..PLAIN
    },
    Shape {
        name: "res2_c3",
        node: "backbone.layer1.1, third convolution (11)",
        height: 200,
        width: 336,
        scale: true,
        residual: true,
        relu: true,
        ..PLAIN
    },
    Shape {
        name: "res4_c3",
        node: "backbone.layer3.1, third convolution (34)",
        height: 50,
        width: 84,
        channels: 256,
        filters: 1024,
        scale: true,
        residual: true,
        relu: true,
        ..PLAIN
    },
    Shape {
        name: "res5_3x3",
        node: "backbone.layer4.1, second convolution (52)",
        height: 25,
        width: 42,
        channels: 512,
        filters: 512,
        kernel: 3,
        pad: 1,
        scale: true,
        relu: true,
        ..PLAIN
    },
];

/// For devices that are slow: every edge of a tile, a filter count that is no multiple of one, and
/// each part of the epilogue.
pub const SMALL: [Shape; 4] = [
    Shape {
        name: "small_3x3",
        images: 2,
        height: 9,
        width: 11,
        channels: 128,
        filters: 136,
        kernel: 3,
        pad: 1,
        ..PLAIN
    },
    Shape {
        name: "small_residual",
        images: 1,
        height: 13,
        width: 21,
        filters: 200,
        scale: true,
        residual: true,
        relu: true,
        ..PLAIN
    },
    Shape {
        name: "small_strided",
        images: 2,
        height: 15,
        width: 13,
        filters: 64,
        kernel: 3,
        stride: 2,
        pad: 1,
        relu: true,
        ..PLAIN
    },
    Shape { name: "small_one_block", images: 1, height: 5, width: 7, filters: 8, ..PLAIN },
];

impl Shape {
    /// P and Q.
    pub fn out(&self) -> [usize; 2] {
        [self.height, self.width].map(|side| (side + 2 * self.pad - self.kernel) / self.stride + 1)
    }

    /// Rows of the product: positions of the output.
    pub fn rows(&self) -> usize {
        let [p, q] = self.out();
        self.images * p * q
    }

    /// Length of the sums.
    pub fn reduction(&self) -> usize {
        self.kernel * self.kernel * self.channels
    }

    /// Elements of x, w and y.
    pub fn elements(&self) -> [usize; 3] {
        let x = self.images * self.height * self.width * self.channels;
        [x, self.filters * self.reduction(), self.rows() * self.filters]
    }

    /// Floating-point operations: two a product.
    pub fn flops(&self) -> f64 {
        2.0 * self.rows() as f64 * self.filters as f64 * self.reduction() as f64
    }

    /// Bytes of all tensors, each once.
    pub fn bytes(&self) -> f64 {
        let [x, w, y] = self.elements();
        let residual = if self.residual { y } else { 0 };
        2.0 * (x + w + y + residual) as f64
    }

    /// The shape of the step, or the small one, of this name.
    pub fn named(name: &str) -> Option<Self> {
        STEP.iter().chain(&SMALL).find(|shape| shape.name == name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MFLOP as `onegraph inspect program torchvision_r50 --device cuda --set
    /// train.batch_size=12` prints them, for the nodes that are named.
    #[test]
    fn shapes_are_those_of_the_step() {
        let megaflops = STEP.map(|shape| (shape.flops() / 1e5).round() / 10.0);
        assert_eq!(megaflops, [951_268.1, 26_424.1, 26_424.1, 59_454.3]);
        assert_eq!(STEP.map(|shape| shape.rows()), [806_400, 806_400, 50_400, 12_600]);
    }
}
