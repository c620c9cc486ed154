//! `--device` of `train`, `eval` and `predict`, and `bench` at a given shape, on a machine without
//! a GPU.

use crate::common::{NO_DEVICE, Place, assert_has, good, micro, said};

/// The error of opening a GPU; `None` if this machine has a GPU.
fn no_gpu() -> Option<String> {
    let absent = kernels::compiled::open(0, |_| ()).err().map(|e| e.to_string());
    if absent.is_none() {
        println!("SKIPPED: there is a GPU here");
    }
    absent
}

#[test]
fn train_eval_and_predict_use_requested_device() {
    let Some(sentence) = no_gpu() else { return };
    let place = Place::new();
    for (run, device) in [("runs/micro", "--device cpu"), ("runs/micro-2", "--device auto")] {
        place.good(&micro(&format!("--set train.steps=2 {device}")));
        assert!(place.text(&format!("{run}/log.txt")).contains("device cpu ("), "{device}");
        let told = place.json(&format!("{run}/report.json"));
        assert_eq!(told["device"], "cpu", "{told}");
        place.good(&format!("eval --run {run} {device}"));
        let images = "runs/data/micro/val-8x64-seed0/images";
        place.good(&format!("predict --run {run} --out {run}/found {device} {images}"));
    }
    for command in [
        micro("--set train.steps=2"),
        "eval --run runs/micro".into(),
        "predict --run runs/micro --out none runs/data/micro/val-8x64-seed0/images".into(),
    ] {
        place.bad(&format!("{command} --device cuda"), NO_DEVICE, &[&sentence]);
    }
    assert_eq!(place.names("runs"), ["data", "micro", "micro-2"], "a run that never began");
}

#[test]
fn bench_times_given_shape_without_data() {
    let Some(sentence) = no_gpu() else { return };
    let place = Place::new();
    let shaped = "--preset micro --padded 64x96 --warmup 1 --json b.json";
    for device in ["cpu", "auto"] {
        good(&mut place.bench(&format!("--steps 3 {shaped} --device {device}")));
        let told = place.json("b.json");
        assert_eq!((&told["padded"][0], &told["steps"]), (&"64x96".into(), &3.into()), "{told}");
        assert!(told["device"].as_str().is_some_and(|d| d.starts_with("cpu: ")), "{told}");
        assert!(told["images_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{told}");
        assert!(told["parts"].as_object().is_some_and(|parts| parts.len() > 3), "{told}");
        assert_eq!(told["finite_losses"], 3, "{told}");
    }
    let long = good(&mut place.bench(&format!("--steps 1000000 --seconds 0.3 {shaped}")));
    let steps = place.json("b.json")["steps"].as_u64().expect("a count");
    assert!(steps > 0 && long.out.contains(&format!("over {steps} of 1000000 steps")));
    for arguments in [format!("--steps 3 {shaped}"), "ops --filter sum".into()] {
        let said = said(&mut place.bench(&format!("{arguments} --device cuda")));
        assert_eq!((said.code, said.err.trim()), (1, format!("error: {sentence}").as_str()));
    }
    let odd = said(&mut place.bench("--preset micro --padded 65x96"));
    assert_has(&odd.err, &["multiples of input.size_divisor, which is 16"]);
}
