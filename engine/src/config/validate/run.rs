//! Checks of `[input]`, `[data]`, `[solver]`, `[train]` and `[eval]`.

use std::collections::HashSet;

use configs::Check;

use crate::config::{BestMetric, Config, Data, Schedule, Train};

/// TOML integers are at most this: a larger seed could not be saved.
const MAX_SEED: u64 = i64::MAX as u64;
/// The allowed values of `data.synthetic.kind`.
const SYNTHETIC_KINDS: [&str; 1] = ["shapes"];

pub(super) fn check(config: &Config, check: &mut Check) {
    input(config, check);
    data(config, check);
    solver(config, check);
    train(config, check);
    check.at_least_one("eval.batch_size", config.eval.batch_size);
    rates(config, check);
}

fn input(config: &Config, check: &mut Check) {
    let input = &config.input;
    check.at_least_one("input.min_size", input.min_size);
    check.require(input.max_size >= input.min_size, "input.max_size", || {
        let (max, min) = (input.max_size, input.min_size);
        format!("is {max}, below input.min_size = {min}; it must be at least that")
    });
    let sizes = &input.augment.min_sizes;
    let fit = sizes.iter().all(|size| *size <= input.max_size) || input.augment.jitter_size > 0;
    check.require(fit, "input.augment.min_sizes", || {
        format!(
            "is {sizes:?}; none may exceed input.max_size = {}: lower them, or use \
             only input.min_size (--set 'input.augment.min_sizes=[]')",
            input.max_size
        )
    });
    check.at_least_one("input.size_divisor", input.size_divisor);
    // The FPN's upsampling requires that the map sizes of adjacent levels differ by a factor of
    // exactly 2.
    let strides = config.level_strides();
    let coarsest = config.num_backbone_levels().checked_sub(1).and_then(|last| strides.get(last));
    let coarsest = coarsest.copied().unwrap_or(1);
    check.require(input.size_divisor.is_multiple_of(coarsest), "input.size_divisor", || {
        let divisor = input.size_divisor;
        format!("is {divisor}; it must be a multiple of {coarsest}, the backbone's coarsest stride")
    });
    let finite = input.mean.iter().all(|mean| mean.is_finite());
    check.require(finite, "input.mean", || format!("is {:?}; it must be finite", input.mean));
    input.std.iter().for_each(|&std| check.positive("input.std", std));
    check.positive("input.pixel_scale", input.pixel_scale);
    check.fraction("input.flip_probability", input.flip_probability);
    check.at_least_one("input.buckets_per_orientation", input.buckets_per_orientation);
    let augment = &input.augment;
    augment.min_sizes.iter().for_each(|&size| check.at_least_one("input.augment.min_sizes", size));
    let [least, most] = augment.jitter_scale;
    check.require(least > 0.0 && least <= most, "input.augment.jitter_scale", || {
        format!("is [{least}, {most}]; give the least factor, then the greatest")
    });
    let crop = augment.crop;
    check.require(crop > 0.0 && crop <= 1.0, "input.augment.crop", || {
        format!("is {crop}; it must be above 0 and at most 1")
    });
    check.not_negative("input.augment.aspect", augment.aspect);
    check.fraction("input.augment.vertical_flip", augment.vertical_flip);
    check.fraction("input.augment.quarter_turns", augment.quarter_turns);
    check.fraction("input.augment.min_visible", augment.min_visible);
    check.fraction("input.augment.brightness", augment.brightness);
    check.fraction("input.augment.contrast", augment.contrast);
    check.fraction("input.augment.saturation", augment.saturation);
    check.fraction("input.augment.hue", augment.hue);
    check.fraction("input.augment.grey", augment.grey);
}

fn data(config: &Config, check: &mut Check) {
    let data = &config.data;
    let mut seen = HashSet::new();
    let again = data.classes.iter().find(|name| !seen.insert(*name));
    check.require(again.is_none(), "data.classes", || {
        format!("names `{}` twice", again.map_or("", |name| name))
    });
    let pairs = [
        ("train", &data.train_images, &data.train_annotations),
        ("val", &data.val_images, &data.val_annotations),
    ];
    for (set, images, annotations) in pairs {
        let (images_key, json_key) =
            (format!("data.{set}_images"), format!("data.{set}_annotations"));
        check.require(images.is_none() || annotations.is_some(), &images_key, || {
            format!("is set, but {json_key} is not; give the annotations' file too")
        });
        check.require(annotations.is_none() || images.is_some(), &json_key, || {
            format!("is set, but {images_key} is not; give the images' folder too")
        });
    }
    let paths = [
        ("data.train_images", &data.train_images),
        ("data.train_annotations", &data.train_annotations),
        ("data.val_images", &data.val_images),
        ("data.val_annotations", &data.val_annotations),
        ("data.train_store", &data.train_store),
        ("data.val_store", &data.val_store),
    ];
    for (key, path) in paths {
        let Some(path) = path else { continue };
        check.text(key, path);
        check.require(data.synthetic.is_none(), key, || {
            "conflicts with [data.synthetic]; remove either (--set data.synthetic=none)".into()
        });
    }
    lists(data, check);
    let val = [
        ("val_store", data.val_store.is_some()),
        ("val_annotations", data.val_annotations.is_some()),
        ("val", !data.val.is_empty()),
    ];
    for (key, _) in val.into_iter().filter(|(_, is_set)| *is_set) {
        check.require(data.val_fraction == 0.0, "data.val_fraction", || {
            format!("conflicts with data.{key}; remove either (--set data.val_fraction=0)")
        });
    }
    check.at_least_one("data.max_image_pixels", data.max_image_pixels);
    let too_large = data.ids.iter().find(|&&id| id > MAX_SEED);
    check.require(too_large.is_none(), "data.ids", || {
        format!("has {}; an id must be at most {MAX_SEED}", too_large.copied().unwrap_or_default())
    });
    if let Some(synthetic) = &data.synthetic {
        let known = SYNTHETIC_KINDS.contains(&synthetic.kind.as_str());
        check.require(known, "data.synthetic.kind", || {
            format!("is \"{}\"; it must be \"{}\"", synthetic.kind, SYNTHETIC_KINDS.join("\", \""))
        });
        check.at_least_one("data.synthetic.train_images", synthetic.train_images);
        check.at_least_one("data.synthetic.val_images", synthetic.val_images);
        check.require(synthetic.image_size >= 32, "data.synthetic.image_size", || {
            format!("is {} pixels; it must be at least 32", synthetic.image_size)
        });
        seed(check, "data.synthetic.seed", synthetic.seed);
        check.text("data.synthetic.dir", &synthetic.dir);
    }
}

/// Checks that each set of a list is either a store or COCO files, and that the data is not also
/// given by another key.
fn lists(data: &Data, check: &mut Check) {
    let train = ["train_store", "train_images"].into_iter();
    let train = train.zip([&data.train_store, &data.train_images]);
    let val = ["val_store", "val_images"].into_iter().zip([&data.val_store, &data.val_images]);
    for (key, list, others) in [("train", &data.train, train), ("val", &data.val, val)] {
        let name = format!("data.{key}");
        let mut seen = HashSet::new();
        for (set, number) in list.iter().zip(1..) {
            let given = [&set.store, &set.images, &set.annotations].map(Option::is_some);
            let is_one = matches!(given, [true, false, false] | [false, true, true]);
            check.require(is_one, &name, || {
                format!(
                    "must give either a store, or images and annotations, for set {number} of the \
                     list"
                )
            });
            let is_twice = !seen.insert([&set.store, &set.images, &set.annotations]);
            check.require(!is_twice, &name, || {
                format!("contains a set twice, the second time as set {number}; remove one")
            });
            [&set.store, &set.images, &set.annotations]
                .into_iter()
                .flatten()
                .for_each(|path| check.text(&name, path));
        }
        let other = others.into_iter().find(|(_, path)| path.is_some()).map(|(other, _)| other);
        let other = other.or(data.synthetic.as_ref().map(|_| "synthetic"));
        if let Some(other) = other.filter(|_| !list.is_empty()) {
            check.require(false, &name, || {
                format!("conflicts with data.{other}; remove either (--set data.{other}=none)")
            });
        }
    }
}

fn seed(check: &mut Check, key: &str, seed: u64) {
    check.require(seed <= MAX_SEED, key, || format!("is {seed}; it must be at most {MAX_SEED}"));
}

fn solver(config: &Config, check: &mut Check) {
    let solver = &config.solver;
    check.positive("solver.learning_rate", solver.learning_rate);
    check.require((0.0..1.0).contains(&solver.momentum), "solver.momentum", || {
        format!("is {}; it must be at least 0 and below 1", solver.momentum)
    });
    check.require(!solver.nesterov || solver.momentum > 0.0, "solver.nesterov", || {
        "is true, but solver.momentum is 0; give a momentum or set it to false".into()
    });
    check.not_negative("solver.weight_decay", solver.weight_decay);
    check.not_negative("solver.bias_lr_factor", solver.bias_lr_factor);
    check.not_negative("solver.bias_weight_decay", solver.bias_weight_decay.unwrap_or(0.0));
    check.not_negative("solver.norm_weight_decay", solver.norm_weight_decay.unwrap_or(0.0));
    let rising = solver.milestones.windows(2).all(|pair| pair[0] < pair[1]);
    check.require(rising, "solver.milestones", || {
        format!("is {:?}; each step must be later than the one before", solver.milestones)
    });
    let rising = solver.milestone_epochs.windows(2).all(|pair| pair[0] < pair[1]);
    check.require(rising, "solver.milestone_epochs", || {
        format!("is {:?}; each must be later than the one before", solver.milestone_epochs)
    });
    check.positive("solver.gamma", solver.gamma);
    let key = "solver.min_learning_rate";
    check.not_negative(key, solver.min_learning_rate);
    check.require(solver.min_learning_rate <= solver.learning_rate, key, || {
        let (min, base) = (solver.min_learning_rate, solver.learning_rate);
        format!("is {min}, above solver.learning_rate = {base}; it must be at most that")
    });
    check.fraction("solver.warmup_factor", solver.warmup_factor);
    check.not_negative("solver.clip_norm", solver.clip_norm);
    check.positive("solver.initial_loss_scale", solver.initial_loss_scale);
    check.require(
        solver.loss_scale_growth_interval >= 1,
        "solver.loss_scale_growth_interval",
        || "is 0; it must be at least 1".into(),
    );
}

/// Checks that learning rates above 0 are normal numbers in f32: a device may flush subnormal
/// numbers to 0.
fn rates(config: &Config, check: &mut Check) {
    let solver = &config.solver;
    let drops = match solver.schedule {
        Schedule::Multistep => solver.milestones.len().max(solver.milestone_epochs.len()),
        Schedule::Cosine => 0,
    };
    let key = |key: &str| format!("solver.{key}");
    let mut factors = vec![
        (key("learning_rate"), Some(1.0)),
        (key("bias_lr_factor"), Some(solver.bias_lr_factor)),
        (key("gamma"), Some(solver.gamma.powi(drops as i32))),
    ];
    let groups = solver.groups.iter().enumerate();
    factors.extend(groups.map(|(i, of)| (key(&format!("groups[{i}].lr_factor")), of.lr_factor)));
    let base = config.rate_for_batch(solver.learning_rate);
    for (key, factor) in factors {
        let factor = factor.unwrap_or(1.0);
        let rate = base * factor;
        let is_lost = factor > 0.0 && (rate as f32) < f32::MIN_POSITIVE;
        check.require(!is_lost, &key, || {
            format!("gives a learning rate of {rate:e}; the least normal number in f32 is 1.2e-38")
        });
    }
}

/// Checks that the number of micro-steps divides the batch size, and the group size the images of a
/// micro-step.
fn groups(train: &Train, check: &mut Check) {
    let (batch, group) = (train.batch_size, train.images_per_group);
    let key = "train.micro_steps";
    check.at_least_one(key, train.micro_steps);
    check.require(batch.is_multiple_of(train.micro_steps.max(1)), key, || {
        let parts = train.micro_steps;
        format!("is {parts}, which does not divide train.batch_size = {batch}; give a divisor")
    });
    let micro = batch / train.micro_steps.max(1);
    let key = "train.images_per_group";
    check.require(micro.is_multiple_of(group.max(1)), key, || match train.micro_steps {
        1 => {
            format!("is {group}, which does not divide train.batch_size = {batch}; give a divisor")
        }
        parts => format!(
            "is {group}, which does not divide the {micro} images of a micro-step \
             (train.batch_size = {batch} over train.micro_steps = {parts}); give a divisor"
        ),
    });
}

fn train(config: &Config, check: &mut Check) {
    let train = &config.train;
    check.require(train.steps >= 1 || train.epochs.is_some(), "train.steps", || {
        "is 0; set it to at least 1, or set train.epochs".into()
    });
    check.positive("train.epochs", train.epochs.unwrap_or(1.0));
    check.at_least_one("train.batch_size", train.batch_size);
    groups(train, check);
    seed(check, "train.seed", train.seed);
    let both = train.eval_every_steps > 0 && train.eval_every_epochs > 0;
    check.require(!both, "train.eval_every_epochs", || {
        "conflicts with train.eval_every_steps; set one of them to 0".into()
    });
    check.at_least_one("train.keep_checkpoints", train.keep_checkpoints);
    check.fraction("train.target_box", train.target_box.unwrap_or(0.0));
    let kind = config.model.kind;
    let (mask, keypoint) = (train.target_mask, train.target_keypoint);
    for (has, metric, word, key, target) in [
        (kind.has_masks(), BestMetric::Mask, "mask", "train.target_mask", mask),
        (kind.has_keypoints(), BestMetric::Keypoint, "keypoint", "train.target_keypoint", keypoint),
    ] {
        check.fraction(key, target.unwrap_or(0.0));
        let kind = kind.name();
        check.require(has || train.best_metric != metric, "train.best_metric", || {
            format!("is \"{word}\", but {kind} has no {word}s; make it \"box\" or \"auto\"")
        });
        check.require(has || target.is_none(), key, || {
            format!("is set, but {kind} has no {word}s; remove it ({key} = \"none\")")
        });
    }
    let decay = train.ema_decay.unwrap_or(0.0);
    check.require(decay as f32 != 1.0, "train.ema_decay", || {
        format!("is {decay}, so the average never changes; give a smaller value, such as 0.9998")
    });
    check.text("train.run_dir", &train.run_dir);
    if let Some(name) = &train.name {
        check.text("train.name", name);
        let is_odd = |c: char| c.is_control() || matches!(c, '/' | '\\');
        let plain = !name.contains(is_odd) && name != "." && name != "..";
        check.require(plain, "train.name", || {
            format!(
                "is {name:?}; it names a folder inside train.run_dir, so it has no slash and \
                 no control character"
            )
        });
    }
}
