//! `onegraph inspect params`: lists each parameter, and how training updates it.

use crate::config::Solver;

use crate::model::{Param, group_of};
use crate::weights::torchvision_shape;

/// One line per parameter: its torchvision name and shape and, if it is trained, its learning rate
/// relative to `solver.learning_rate` and its weight decay. Then the parameter counts.
pub(super) fn text(params: &[Param], solver: &Solver) -> String {
    let width = params.iter().map(|param| param.name.len()).max().unwrap_or(0);
    let [shape, trained, factor, decay] = ["shape", "trained", "lr_factor", "weight_decay"];
    let mut text =
        format!("{:<width$} {shape:<20} {trained:<7} {factor:>10} {decay:>12}\n", "parameter");
    for param in params {
        let shape = format!("{:?}", torchvision_shape(param));
        let name = &param.name;
        text += &match param.trained {
            None => format!("{name:<width$} {shape:<20} no\n"),
            Some(_) => {
                let group = group_of(solver, name, param.kind);
                let (factor, decay) = (group.lr_factor, group.weight_decay);
                format!("{name:<width$} {shape:<20} {:<7} {factor:>10} {decay:>12}\n", "yes")
            }
        };
    }
    let trained: Vec<&Param> = params.iter().filter(|param| param.trained.is_some()).collect();
    let values = |of: &mut dyn Iterator<Item = &Param>| -> usize {
        of.map(|param| param.shape.iter().product::<usize>()).sum()
    };
    text += &format!(
        "\n{} parameters of {} values, {} of {} trained\n",
        params.len(),
        values(&mut params.iter()),
        trained.len(),
        values(&mut trained.into_iter()),
    );
    text
}
