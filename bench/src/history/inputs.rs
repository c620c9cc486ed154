//! Turns the JSON of commands and scripts into figures of the history. A format is recognized by
//! its fields; unknown formats are rejected.

use serde_json::Value;

use super::schema::{Infer, Node, Op, Peer, Prediction, Probe, Rate, Session, Step};

/// Adds the contents of `value` to the session.
///
/// # Errors
/// The fault; completes a sentence that starts with the file's name.
pub(super) fn take(value: &Value, session: &mut Session) -> Result<(), String> {
    // Skipped, or nothing to measure.
    if value.is_null() || value.as_array().is_some_and(Vec::is_empty) {
        return Ok(());
    }
    tell_device(value, session)?;
    let has = |pointer: &str| value.pointer(pointer).is_some();
    match text(value, "/kind").unwrap_or_default().as_str() {
        "infer" => infer(value, session),
        "torchvision_eval" => torchvision_eval(value, session),
        "figures" => figures(value, session),
        "" if has("/step_ms/p50") && has("/preset") => step(value, session),
        "" if has("/cases/0/case") => ops(value, session),
        "" if has("/ceilings") && has("/repeats") => nodes(value, session),
        "" if has("/results") && has("/gpu") => probe(value, session),
        "" if has("/images_per_second") && has("/threads") => data(value, session),
        "" if has("/0/img_s_median") => torchvision_step(value, session),
        "" => Err("holds no figures that this version knows".into()),
        kind => Err(format!("holds figures of a kind that this version does not know, `{kind}`")),
    }
}

/// Whether [`take`] recognizes it.
pub(super) fn is_known(value: &Value) -> bool {
    let mut nowhere = Session::default();
    !value.is_null() && take(value, &mut nowhere).is_ok()
}

/// Commit, device and CUDA version from one of our own commands: equal throughout a session.
fn tell_device(value: &Value, session: &mut Session) -> Result<(), String> {
    let (Ok(commit), Ok(device)) = (text(value, "/commit"), text(value, "/device")) else {
        return Ok(());
    };
    same("commit", &commit, &mut session.commit)?;
    same("device", &device, &mut session.device)?;
    if let Ok(driver) = text(value, "/driver") {
        session.cuda = Some(driver);
    }
    Ok(())
}

/// Sets a field of the session, or checks that it is equal.
pub(super) fn same(what: &str, told: &str, field: &mut String) -> Result<(), String> {
    if field.is_empty() {
        *field = told.to_string();
    }
    if field == told {
        return Ok(());
    }
    Err(format!("is of the {what} `{told}`, other files of `{field}`: add each by itself"))
}

fn step(value: &Value, session: &mut Session) -> Result<(), String> {
    session.steps.push(Step {
        preset: text(value, "/preset")?,
        batch: count(value, "/batch_size")?,
        all_reduce: text(value, "/all_reduce").ok().filter(|through| through != "none"),
        padded: texts(value, "/padded")?,
        images_per_second: number(value, "/images_per_second")?,
        p50_ms: number(value, "/step_ms/p50")?,
        p95_ms: number(value, "/step_ms/p95")?,
        steps: count(value, "/steps")?,
        data_ms: number(value, "/data_ms")?,
        bytes: count(value, "/peak_bytes").ok(),
        prediction: None,
    });
    Ok(())
}

fn infer(value: &Value, session: &mut Session) -> Result<(), String> {
    for case in list(value, "/cases")? {
        let rate = |part: &str| {
            Ok::<_, String>(Rate {
                images_per_second: number(case, &format!("/{part}/images_per_second"))?,
                p50_ms: number(case, &format!("/{part}/p50_ms"))?,
                p95_ms: number(case, &format!("/{part}/p95_ms"))?,
            })
        };
        session.infer.push(Infer {
            preset: text(value, "/preset")?,
            batch: count(case, "/batch_size")?,
            padded: texts(case, "/padded")?,
            weights: text(value, "/weights")?,
            score_threshold: number(value, "/score_threshold")?,
            detections_per_image: number(case, "/detections_per_image")?,
            images: count(case, "/images")?,
            program: rate("program")?,
            boxes: rate("boxes")?,
            masks: rate("masks")?,
            scored_images_per_second: number(case, "/scored/images_per_second")?,
            prediction: None,
        });
    }
    Ok(())
}

fn ops(value: &Value, session: &mut Session) -> Result<(), String> {
    for case in list(value, "/cases")? {
        session.ops.push(Op {
            case: text(case, "/case")?,
            ms: number(case, "/ms")?,
            flops: number(case, "/flops")?,
            bytes: number(case, "/bytes")?,
        });
    }
    if let Ok(failed) = list(value, "/failed") {
        session.counts.insert("ops failed, cases".into(), failed.len() as f64);
    }
    Ok(())
}

fn data(value: &Value, session: &mut Session) -> Result<(), String> {
    let name = format!(
        "data {} on {} threads, images/s",
        text(value, "/preset")?,
        number(value, "/threads")?
    );
    session.counts.insert(name, number(value, "/images_per_second")?);
    Ok(())
}

fn torchvision_eval(value: &Value, session: &mut Session) -> Result<(), String> {
    let product = format!("torchvision {}", text(value, "/torchvision")?);
    let threshold = number(value, "/score_threshold")?;
    for case in list(value, "/cases")? {
        let what = format!(
            "eval {} {}, batch {}, {}, scores over {threshold}",
            text(case, "/variant")?,
            text(case, "/part")?,
            count(case, "/batch_size")?,
            text(case, "/padded")?,
        );
        session.peers.push(Peer {
            product: product.clone(),
            what,
            value: number(case, "/images_per_second")?,
            unit: "images/s".into(),
            p50_ms: Some(number(case, "/p50_ms")?),
            detections_per_image: Some(number(case, "/detections_per_image")?),
        });
    }
    Ok(())
}

/// The rows of a baseline's training step.
fn torchvision_step(value: &Value, session: &mut Session) -> Result<(), String> {
    for row in list(value, "")? {
        let (variant, shapes) = (text(row, "/variant")?, text(row, "/shapes")?);
        session.peers.push(Peer {
            product: "torchvision".into(),
            what: format!("step {variant}, batch {}, {shapes} shapes", count(row, "/batch")?),
            value: number(row, "/img_s_median")?,
            unit: "images/s".into(),
            p50_ms: Some(number(row, "/median_ms")?),
            detections_per_image: None,
        });
    }
    Ok(())
}

/// A profiled step, as far as it got.
fn nodes(value: &Value, session: &mut Session) -> Result<(), String> {
    let nowhere = Vec::new();
    for row in list(value, "/rows").unwrap_or(&nowhere) {
        let kernel = |part: &Value| Ok((text(part, "/kernel")?, number(part, "/us")?));
        let kernels = list(row, "/kernels")?.iter().map(kernel).collect::<Result<_, String>>()?;
        session.nodes.push(Node {
            op: text(row, "/op")?,
            pass: text(row, "/pass")?,
            shapes: text(row, "/shapes")?,
            first: text(row, "/nodes/0")?,
            count: count(row, "/count")?.max(1),
            us: number(row, "/us")?,
            kernels,
            flops: number(row, "/flops")?,
            bytes: number(row, "/bytes")?,
            share_of_ceiling: number(row, "/share_of_ceiling").ok(),
            prediction: None,
        });
    }
    let (preset, batch) = (text(value, "/preset")?, count(value, "/batch_size")?);
    let step = format!("{preset}, batch {batch}, {}", text(value, "/padded")?);
    let whole = [
        ("/launches/sum_ms", "sum of launches, ms"),
        ("/graph/ms", "graph, ms"),
        ("/graph_on_one_stream/ms", "graph on one stream, ms"),
        ("/gap_ms", "graph less its launches, ms"),
    ];
    for (pointer, name) in whole {
        if let Ok(ms) = number(value, pointer) {
            session.counts.insert(format!("{step}: {name}"), ms);
        }
    }
    Ok(())
}

/// `{"kind": "figures", "product": .., "figures": [{"what", "value", "unit"}]}`: any baseline's.
fn figures(value: &Value, session: &mut Session) -> Result<(), String> {
    for figure in list(value, "/figures")? {
        session.peers.push(Peer {
            product: text(value, "/product")?,
            what: text(figure, "/what")?,
            value: number(figure, "/value")?,
            unit: text(figure, "/unit")?,
            p50_ms: number(figure, "/p50_ms").ok(),
            detections_per_image: None,
        });
    }
    Ok(())
}

/// Kernel variants. The prediction is their speed; variants that could not be measured are listed.
fn probe(value: &Value, session: &mut Session) -> Result<(), String> {
    let commit = text(value, "/commit")?;
    if commit != "unknown" {
        same("commit", &commit, &mut session.commit)?;
    }
    for result in list(value, "/results")? {
        let name = format!("{} on {}", text(result, "/variant")?, text(result, "/on")?);
        let status = text(result, "/status")?;
        let is_as_expected = result["holds"] == result["expected"];
        if status == "measured" {
            let source = "the probe's table".to_string();
            let expected = |value| Prediction { value, margin: None, source };
            session.probe.push(Probe {
                name,
                value: number(result, "/figures/tflops")?,
                unit: "TFLOP/s".into(),
                prediction: number(result, "/figures/expected_tflops").ok().map(expected),
            });
        } else if status != "skipped" && !(status == "read" && is_as_expected) {
            let why = text(result, "/reason").or(text(result, "/instead")).unwrap_or_default();
            session.remarks.push(format!("probe {name} {status}: {why}"));
        }
    }
    Ok(())
}

pub(super) fn text(value: &Value, pointer: &str) -> Result<String, String> {
    let found = value.pointer(pointer).and_then(Value::as_str).map(str::to_string);
    found.ok_or_else(|| format!("has no text at `{pointer}`"))
}

/// To six digits: no figure is more accurate, and people read the files in git.
pub(super) fn number(value: &Value, pointer: &str) -> Result<f64, String> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    let short = |number: f64| format!("{number:.5e}").parse().unwrap_or(number);
    found.map(short).ok_or_else(|| format!("has no number at `{pointer}`"))
}

fn count(value: &Value, pointer: &str) -> Result<u64, String> {
    let found = value.pointer(pointer).and_then(Value::as_u64);
    found.ok_or_else(|| format!("has no count at `{pointer}`"))
}

pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> Result<&'a Vec<Value>, String> {
    let found = value.pointer(pointer).and_then(Value::as_array);
    found.ok_or_else(|| format!("has no list at `{pointer}`"))
}

/// A list of texts, one after the other.
fn texts(value: &Value, pointer: &str) -> Result<String, String> {
    let parts: Vec<&str> = list(value, pointer)?.iter().filter_map(Value::as_str).collect();
    Ok(parts.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_step_taken_apart_is_known_as_far_as_it_came() {
        let mut value = json!({
            "device": "G", "driver": "CUDA 12.8", "commit": "abc", "preset": "torchvision_r50",
            "batch_size": 12, "padded": "800x1344", "repeats": 7, "ceilings": null,
        });
        let mut session = Session::default();
        take(&value, &mut session).expect("the head alone");
        assert!(session.nodes.is_empty() && session.counts.is_empty());
        value["rows"] = json!([{
            "op": "conv2d_grad_weight", "pass": "backward", "shapes": "1 2 -> 3", "count": 2,
            "us": 3600.0, "each_us": 1800.0, "flops": 1e9, "bytes": 1e6, "share_of_ceiling": null,
            "nodes": ["mask_head.predictor.x#124", "other"],
            "kernels": [{"kernel": "a", "us": 3500.0}, {"kernel": "b", "us": 100.0}],
        }]);
        value["gap_ms"] = 1.5.into();
        value["graph"] = json!({"ms": 66.0, "least_ms": 65.0});
        take(&value, &mut session).expect("rows");
        let node = &session.nodes[0];
        assert_eq!((node.each_us(), node.kernels.len()), (1800.0, 2));
        assert_eq!(
            (node.first.as_str(), node.share_of_ceiling),
            ("mask_head.predictor.x#124", None)
        );
        let step = "torchvision_r50, batch 12, 800x1344: ";
        assert_eq!(session.counts[&format!("{step}graph, ms")], 66.0);
        assert_eq!(session.counts[&format!("{step}graph less its launches, ms")], 1.5);
        assert_eq!(session.counts.len(), 2, "{:?}", session.counts);
        let sixth = number(&json!(0.177_697_768_044), "").expect("a number");
        assert_eq!(sixth, 0.177698, "six digits");
    }

    #[test]
    fn a_probe_tells_speeds_and_what_was_not_as_expected() {
        let read = |on: &str, holds: bool| {
            json!({"variant": "identity", "on": on, "status": "read", "holds": holds,
                   "expected": true, "instead": if holds { None } else { Some("rows swapped") }})
        };
        let value = json!({
            "gpu": "NVIDIA H100 80GB HBM3", "driver_cuda": "12.8", "commit": "unknown",
            "results": [
                {"variant": "pointers", "on": "fpn_p2", "status": "measured",
                 "figures": {"tflops": 400.0, "expected_tflops": 410.4}},
                read("a", true), read("b", false),
                {"variant": "wgmma", "on": "p2", "status": "skipped", "reason": "no time"},
                {"variant": "wgmma", "on": "p3", "status": "failed", "reason": "it differs"},
            ],
        });
        let mut session = Session::default();
        take(&value, &mut session).expect("a probe");
        assert_eq!(session.probe.len(), 1);
        assert_eq!(session.probe[0].prediction.as_ref().map(|p| p.value), Some(410.4));
        let remarks =
            ["probe identity on b read: rows swapped", "probe wgmma on p3 failed: it differs"];
        assert_eq!(session.remarks, remarks);
    }
}
