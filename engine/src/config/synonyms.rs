//! Other projects' names for config keys, each with onegraph's key or a message.

use std::sync::LazyLock;

use super::Optimizer;

/// Names in other projects, and the corresponding key or a message.
type Row = (&'static [&'static str], &'static str);

/// All synonyms, including those of optimizers.
pub(super) static SYNONYMS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let rules = Optimizer::ALL.iter().map(|(_, entry)| (entry.synonyms, "solver.optimizer"));
    OF_KEYS.iter().copied().chain(rules).collect()
});

/// Synonyms of keys. An entry that begins with "onegraph" is a message, not a key.
const OF_KEYS: &[Row] = &[
    (&["epoch", "max_epochs", "num_epochs"], "train.epochs"),
    (&["max_iter", "max_iters", "iterations", "max_steps"], "train.steps"),
    (&["batch", "bs", "ims_per_batch", "samples_per_gpu"], "train.batch_size"),
    (&["accumulate", "accumulation_steps", "grad_accum"], "train.micro_steps"),
    (&["lr", "lr0", "base_lr"], "solver.learning_rate"),
    (&["lrf", "min_lr", "eta_min"], "solver.min_learning_rate"),
    (&["warmup", "warmup_iters"], "solver.warmup_steps"),
    (&["scheduler", "lr_scheduler", "lr_policy", "cos_lr"], "solver.schedule"),
    (&["wd"], "solver.weight_decay"),
    (&["clip", "grad_clip", "clip_grad", "max_grad_norm"], "solver.clip_norm"),
    (&["ema", "model_ema", "swa"], "train.ema_decay"),
    (&["freeze_at", "frozen"], "model.backbone.frozen_stages"),
    (&["early_stop", "early_stopping"], "train.patience"),
    (&["amp", "fp16", "bf16", "half", "mixed_precision", "dtype"], "train.precision"),
    (
        &["workers", "num_workers"],
        "onegraph has no worker processes: images are decoded by threads, whose number is set by \
         RAYON_NUM_THREADS",
    ),
    (&["img", "imgsz", "img_size", "input_size", "short_side"], "input.min_size"),
    (
        &["augmentation", "mosaic", "mixup", "copy_paste", "degrees"],
        "onegraph samples sizes, crops, aspect ratios, flips, rotations and colours, which \
         [input.augment] sets",
    ),
    (&["multiscale", "multi_scale"], "input.augment.min_sizes"),
    (&["lsj", "scale_jitter"], "input.augment.jitter_size"),
    (&["vflip", "flipud"], "input.augment.vertical_flip"),
    (&["rot90", "rotate90"], "input.augment.quarter_turns"),
    (&["hsv", "hsv_h"], "input.augment.hue"),
    (&["hsv_s"], "input.augment.saturation"),
    (&["hsv_v", "color_jitter"], "input.augment.brightness"),
    (&["gray", "grayscale"], "input.augment.grey"),
    (&["repeat_thr", "oversample_thr", "sampler_train"], "data.repeat_threshold"),
    (&["flip", "hflip", "fliplr"], "input.flip_probability"),
    (&["nc", "num_class"], "model.num_classes"),
    (&["single_cls"], "data.single_class"),
    (&["class_weights", "class_weight", "cls_pw"], "loss_weights.classes"),
    (&["param_groups", "paramwise_cfg", "layer_decay"], "solver.groups"),
    (&["pretrained", "load_from", "init", "checkpoint"], "model.weights"),
    (&["conf", "conf_thres", "score_thresh"], "model.detections.score_threshold"),
    (&["iou", "iou_thres", "nms", "nms_thresh"], "model.detections.nms_threshold"),
    (&["max_det", "detections_per_image"], "model.detections.per_image"),
    (&["eval_interval", "eval_period", "val_interval"], "train.eval_every_steps"),
    (&["save_period", "checkpoint_period"], "train.checkpoint_every_steps"),
    (&["data", "dataset", "data_dir", "data_path"], "data.train_store"),
    (&["output_dir", "project", "work_dir"], "train.run_dir"),
    (
        &["device", "gpu", "gpus"],
        "onegraph has no key for the device: use the option `onegraph train --device`",
    ),
    (&["resume"], "onegraph has no key for resuming: use `onegraph train --resume RUN`"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::schema;

    #[test]
    fn every_synonym_maps_to_a_key_or_a_reason() {
        let mut seen = std::collections::BTreeSet::new();
        for (names, answer) in SYNONYMS.iter() {
            assert!(schema().key(answer).is_some() || answer.starts_with("onegraph "), "{answer}");
            for name in *names {
                assert!(seen.insert(name), "{name} twice");
                let is_name = |key: &configs::Key| key.name.rsplit('.').next() == Some(name);
                assert!(!schema().keys().iter().any(is_name), "{name} is a key's own name");
            }
        }
        for name in
            ["max_epochs", "frozen", "workers", "early_stop", "imgsz", "amp", "augmentation", "ema"]
        {
            assert!(schema().synonym(name).is_some(), "{name}");
        }
        assert_eq!(schema().synonym("batchsize"), None);
    }
}
