//! Checks of `[solver]` that depend on the optimizer, and of `[loss_weights]`.

use configs::Check;

use crate::config::{Config, Optimizer};

pub(super) fn check(config: &Config, check: &mut Check) {
    let solver = &config.solver;
    solver.check_rules(check);
    let is_sgd = solver.optimizer == Optimizer::Sgd;
    check.require(is_sgd || !solver.nesterov, "solver.nesterov", || {
        "is true, which only solver.optimizer = \"sgd\" supports; set it to false".into()
    });
    for (i, group) in solver.groups.iter().enumerate() {
        let sets = group.lr_factor.is_some() || group.weight_decay.is_some();
        check.require(sets, &format!("solver.groups[{i}]"), || {
            "sets nothing; give lr_factor, weight_decay or both".into()
        });
    }
    for (i, rule) in config.train.log.iter().enumerate() {
        check.require(!rule.reduce.is_empty(), &format!("train.log[{i}].reduce"), || {
            "is empty; list some of mean, l2, min, max, std and histogram".into()
        });
    }
    loss_weights(config, check);
}

fn loss_weights(config: &Config, check: &mut Check) {
    let kind = config.model.kind;
    let own = (kind.family().losses)(&config.model);
    let all = config.loss_weights.all();
    for &(loss, objects, weight) in &all {
        let key = format!("loss_weights.{loss}");
        check.not_negative(&key, weight);
        check.require(own.contains(&loss) || weight == 1.0, &key, || {
            format!("is set, but {} has no {objects}; remove it", kind.name())
        });
    }
    let trains = |(loss, _, weight): &(&str, _, f32)| own.contains(loss) && *weight > 0.0;
    check.require(all.iter().any(trains), "loss_weights", || {
        "are all 0, so there is nothing to train; give one above 0".into()
    });
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn fault(set: &[&str]) -> Option<String> {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        Config::load("micro", &set).err().map(|fault| fault.to_string())
    }

    #[test]
    fn invalid_solver_or_loss_weight_value_is_rejected() {
        for set in [
            vec!["solver.optimizer=novograd"],
            vec!["solver.optimizer=lars", "solver.lars.trust_coefficient=0.02"],
            vec!["solver.optimizer=novograd", "solver.novograd.form=paper"],
            vec!["loss_weights.mask=0", "loss_weights.box_reg=2.5"],
            vec!["loss_weights.classes={cat=2, 'hot dog'=0}", "loss_weights.classes.cat=3"],
            vec!["solver.groups=[{match='*', lr_factor='none', weight_decay=0}]"],
        ] {
            assert_eq!(fault(&set), None);
        }
        for (set, words) in [
            (vec!["solver.optimizer=lars", "solver.nesterov=true"], "solver.nesterov"),
            (vec!["solver.adamw.beta2=1"], "solver.adamw.beta2"),
            (vec!["solver.groups=[{match='*'}]"], "`solver.groups[0]` sets nothing"),
            (vec!["solver.groups=[{match='*', lr_factor=-1}]"], "`solver.groups.lr_factor` is -1"),
            (
                vec!["solver.groups=[{match='*', lr_facto=1}]"],
                "did you mean `solver.groups[0].lr_factor`?",
            ),
            (vec!["solver.groups=[{match=1}]"], "`solver.groups[0].match` must be a quoted string"),
            (
                vec!["solver.groups.match=a"],
                "must be a list of tables of match, lr_factor, weight_decay, got a table",
            ),
            (vec!["solver.adamw.eps=0"], "solver.adamw.eps"),
            (vec!["solver.novograd.beta1=1"], "solver.novograd.beta1"),
            (vec!["solver.novograd.beta2=1.5"], "solver.novograd.beta2"),
            (vec!["solver.lars.trust_coefficient=0"], "solver.lars.trust_coefficient"),
            (vec!["loss_weights.box_reg=-1"], "loss_weights.box_reg"),
            (vec!["loss_weights.classes.cat=-1"], "`loss_weights.classes` is -1"),
            (vec!["loss_weights.classes.cat=a"], "`loss_weights.classes.cat` must be a number"),
            (vec!["loss_weights.classes=2"], "must be a table, where each value is a number"),
            (vec!["model.kind=faster_rcnn", "loss_weights.mask=2"], "faster_rcnn has no masks"),
            (
                vec![
                    "loss_weights.objectness=0",
                    "loss_weights.rpn_box_reg=0",
                    "loss_weights.classifier=0",
                    "loss_weights.box_reg=0",
                    "loss_weights.mask=0",
                ],
                "nothing to train",
            ),
        ] {
            let error = fault(&set).expect("a fault");
            assert!(error.contains(words), "{set:?}: {error}");
        }
    }
}
