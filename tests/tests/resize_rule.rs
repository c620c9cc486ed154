//! The size of an image in the network, against both references' recorded sizes.

#[path = "../golden/support.rs"]
mod support;

use dali::order::resized_size;
use engine::config::ResizeRounding;

/// maskrcnn-benchmark's rule: sizes that its own code gave.
#[test]
fn maskrcnn_benchmark_sizes() {
    let Some(family) = support::Family::open("mlperf_ops") else { return };
    let case = family.case("resize_rule");
    let (min_size, max_size) = (case.usize("min_size"), case.usize("max_size"));
    let (sizes_in, sizes_out) = (case.i32("in_wh").indices(), case.i32("out_wh").indices());
    for (given, want) in sizes_in.chunks_exact(2).zip(sizes_out.chunks_exact(2)) {
        let (w, h) = (given[0] as u32, given[1] as u32);
        let (got_h, got_w) = resized_size(h, w, min_size, max_size, ResizeRounding::HalfEven);
        assert_eq!([got_w as usize, got_h as usize], want, "{w}x{h} (width x height)");
    }
    println!("resize_rule: {} sizes", sizes_in.len() / 2);
}

/// torchvision's rule: the sizes of its own transform.
#[test]
fn torchvision_sizes() {
    let Some(family) = support::Family::open("resize_transform") else { return };
    let pairs = |value: &serde_json::Value| -> Vec<(usize, usize)> {
        let pair = |p: &serde_json::Value| Some((p[0].as_u64()? as usize, p[1].as_u64()? as usize));
        let pairs: Option<Vec<_>> = value.as_array().and_then(|a| a.iter().map(pair).collect());
        pairs.expect("a list of height, width")
    };
    for case in family.cases() {
        let (min_size, max_size) = (case.usize("min_size"), case.usize("max_size"));
        let given = pairs(case.attribute("sizes_hw"));
        for (&(h, w), want) in given.iter().zip(pairs(case.attribute("resized_hw"))) {
            let got =
                resized_size(h as u32, w as u32, min_size, max_size, ResizeRounding::FloorScale);
            assert_eq!((got.0 as usize, got.1 as usize), want, "{}: {h}x{w}", case.name());
        }
    }
}
