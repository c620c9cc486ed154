//! What the commands and scripts leave as JSON, turned into figures of the history. Each form is
//! known by what it holds; one that is not known is refused.

use serde_json::Value;

use super::schema::{Infer, Node, Op, Peer, Prediction, Probe, Rate, Session, Step};

/// Adds what `value` holds to the session.
///
/// # Errors
/// What is wrong with it, to be read after the file's name.
pub(super) fn take(value: &Value, session: &mut Session) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    tell_device(value, session)?;
    let has = |pointer: &str| value.pointer(pointer).is_some();
    match text(value, "/kind").unwrap_or_default().as_str() {
        "infer" => infer(value, session),
        "torchvision_eval" => torchvision_eval(value, session),
        "nodes" => nodes(value, session),
        "figures" => figures(value, session),
        "probe" => probe(value, session),
        "" if has("/step_ms/p50") && has("/preset") => step(value, session),
        "" if has("/cases/0/case") => ops(value, session),
        "" if has("/images_per_second") && has("/threads") => data(value, session),
        "" if has("/0/img_s_median") => torchvision_step(value, session),
        "" => Err("holds no figures that this version knows".into()),
        kind => Err(format!("holds figures of a kind that this version does not know, `{kind}`")),
    }
}

/// Whether [`take`] knows it.
pub(super) fn is_known(value: &Value) -> bool {
    let mut nowhere = Session::default();
    !value.is_null() && take(value, &mut nowhere).is_ok()
}

/// Commit, device and CUDA version of one of our own commands: the same in all of a session.
fn tell_device(value: &Value, session: &mut Session) -> Result<(), String> {
    let Ok(commit) = text(value, "/commit") else { return Ok(()) };
    same("commit", &commit, &mut session.commit)?;
    if let Ok(device) = text(value, "/device") {
        same("device", &device, &mut session.device)?;
    }
    if let Ok(driver) = text(value, "/driver") {
        session.cuda = Some(driver);
    }
    Ok(())
}

/// Sets a field of the session, or finds it as it is.
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

/// The rows of the peer's training step.
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

fn nodes(value: &Value, session: &mut Session) -> Result<(), String> {
    for node in list(value, "/nodes")? {
        session.nodes.push(Node {
            part: text(node, "/part")?,
            kernel: text(node, "/kernel")?,
            shape: text(node, "/shape")?,
            launches: count(node, "/launches")?,
            us: number(node, "/us")?,
            flops: number(node, "/flops").ok(),
            bytes: number(node, "/bytes").ok(),
            prediction: None,
        });
    }
    Ok(())
}

/// `{"kind": "figures", "product": .., "figures": [{"what", "value", "unit"}]}`: any peer's.
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

/// `{"kind": "probe", "figures": [{"name", "value", "unit", "expected"}]}`.
fn probe(value: &Value, session: &mut Session) -> Result<(), String> {
    for figure in list(value, "/figures")? {
        let expected = |value| Prediction { value, margin: None, source: "the probe".into() };
        session.probe.push(Probe {
            name: text(figure, "/name")?,
            value: number(figure, "/value")?,
            unit: text(figure, "/unit")?,
            prediction: number(figure, "/expected").ok().map(expected),
        });
    }
    Ok(())
}

pub(super) fn text(value: &Value, pointer: &str) -> Result<String, String> {
    let found = value.pointer(pointer).and_then(Value::as_str).map(str::to_string);
    found.ok_or_else(|| format!("has no text at `{pointer}`"))
}

pub(super) fn number(value: &Value, pointer: &str) -> Result<f64, String> {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.ok_or_else(|| format!("has no number at `{pointer}`"))
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
