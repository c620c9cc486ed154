//! The scores of each class as aligned text.

use std::cmp::Ordering;

use super::{ClassScores, IouType};
use dali::plain;

/// Minimum number of classes for a table with two columns.
const TWO_COLUMNS: usize = 24;
/// Number of best classes, and of worst classes, in a short table.
const ENDS: usize = 10;
/// Maximum length of a name in characters; longer names are truncated.
const NAME_WIDTH: usize = 24;

/// One line per class, in the order of class ids: objects, AP at IoU 0.50:0.95, AP at IoU 0.50, and
/// AR at IoU 0.50:0.95 with 100 detections per image; `-` if undefined. For keypoints, OKS replaces
/// IoU, with 20 detections per image. 24 or more classes are printed in two columns, each read
/// downwards.
#[must_use]
pub fn class_table(classes: &[ClassScores], iou_type: IouType) -> String {
    let columns = if classes.len() >= TWO_COLUMNS { 2 } else { 1 };
    table(&classes.iter().collect::<Vec<_>>(), iou_type, columns)
}

/// Like [`class_table`], but with more than 20 classes only the 10 classes with the highest AP,
/// next to the 10 with the lowest AP.
#[must_use]
pub fn short_class_table(classes: &[ClassScores], iou_type: IouType) -> String {
    if classes.len() <= 2 * ENDS {
        return class_table(classes, iou_type);
    }
    let mut shown: Vec<&ClassScores> = classes.iter().filter(|c| c.ap.is_some()).collect();
    shown.sort_by(|a, b| b.ap.partial_cmp(&a.ap).unwrap_or(Ordering::Equal));
    if shown.len() > 2 * ENDS {
        shown.drain(ENDS..shown.len() - ENDS);
    }
    let others = classes.len() - shown.len();
    format!("{}\n.. and {others} other classes, which the report lists", table(&shown, iou_type, 2))
}

fn table(classes: &[&ClassScores], iou_type: IouType, columns: usize) -> String {
    let names: Vec<String> = classes.iter().map(|class| plain(&class.name)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max();
    let width = longest.unwrap_or(0).clamp("class".len(), NAME_WIDTH);
    let recall = iou_type.recall_name();
    let head = format!("{:<width$} objects    AP   AP50  {recall:>5}", "class");
    let mut cells = classes.iter().zip(&names).map(|(class, name)| line(class, name, width));
    let rows = classes.len().div_ceil(columns).max(1);
    let mut lines = vec![String::new(); rows + 1];
    for column in 0..columns {
        let gap = if column == 0 { "" } else { "  |  " };
        let texts = std::iter::once(head.clone()).chain(cells.by_ref().take(rows));
        for (line, text) in lines.iter_mut().zip(texts) {
            *line += gap;
            *line += &text;
        }
    }
    lines.join("\n").trim_end().to_string()
}

fn line(class: &ClassScores, name: &str, width: usize) -> String {
    let is_long = name.chars().count() > width;
    let name: String = match is_long {
        true => name.chars().take(width - 1).chain(['~']).collect(),
        false => name.to_string(),
    };
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let (ap, ap50, ar) = (number(class.ap), number(class.ap50), number(class.ar));
    format!("{name:<width$} {:>7} {ap:>5}  {ap50:>5}  {ar:>5}", class.objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes(names: &[&str]) -> Vec<ClassScores> {
        let class = |(i, name): (usize, &&str)| {
            let score = (i > 0).then_some(0.25);
            let (ap, ap50, ap75, ar) = (score, score.map(|s| 2.0 * s), score, score);
            ClassScores {
                name: name.to_string(),
                objects: i,
                ap,
                ap50,
                ap75,
                ar,
                best_threshold: None,
                precision: vec![],
            }
        };
        names.iter().enumerate().map(class).collect()
    }

    fn table(names: &[&str]) -> String {
        class_table(&classes(names), IouType::Bbox)
    }

    #[test]
    fn short_class_table_lists_best_and_worst() {
        let names: Vec<String> = (0..80).map(|i| format!("c{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut many = classes(&names);
        for (i, class) in many.iter_mut().enumerate().skip(1) {
            class.ap = Some(i as f64 / 100.0);
        }
        let drawn = short_class_table(&many, IouType::Bbox);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 12, "{drawn}");
        assert!(lines[1].starts_with("c79 ") && lines[1].contains("|  c10 "), "{drawn}");
        assert!(lines[10].starts_with("c70 ") && lines[10].contains("|  c1 "), "{drawn}");
        assert_eq!(lines[11], ".. and 60 other classes, which the report lists");
        let few = &many[..20];
        assert_eq!(short_class_table(few, IouType::Segm), class_table(few, IouType::Segm));
        let undefined: Vec<ClassScores> = classes(&["none"; 30]).into_iter().take(1).collect();
        let few: Vec<ClassScores> =
            many[..12].iter().chain(undefined.iter().cycle().take(18)).cloned().collect();
        assert!(
            short_class_table(&few, IouType::Bbox)
                .ends_with(".. and 19 other classes, which the report lists")
        );
    }

    #[test]
    fn class_table_has_one_line_per_class() {
        let expected = "class objects    AP   AP50  AR100\n\
                        none        0     -      -      -\n\
                        Gr\u{f6}\u{df}e       1 0.250  0.500  0.250";
        assert_eq!(table(&["none", "Gr\u{f6}\u{df}e"]), expected);
        let of_keypoints = class_table(&classes(&["none"]), IouType::Keypoints);
        assert!(of_keypoints.starts_with("class objects    AP   AP50     AR\n"), "{of_keypoints}");
    }

    #[test]
    fn long_class_table_fills_two_columns_downwards() {
        let names: Vec<String> = (0..81).map(|i| format!("c{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let drawn = table(&names);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 42);
        assert!(lines[1].starts_with("c0 ") && lines[1].contains("|  c41 "), "{drawn}");
        assert!(lines[41].starts_with("c40 ") && !lines[41].contains('|'), "{drawn}");
        let long = table(&["a name that is longer than any column should be"]);
        assert!(long.contains("a name that is longer t~ "), "{long}");
    }
}
