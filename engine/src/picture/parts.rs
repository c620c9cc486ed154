//! Draws a Program grouped by model part, with the tensors passed between parts, forward and
//! backward.

use std::collections::{BTreeMap, BTreeSet};

use device::Target;
use graph::program::Pass;
use graph::report::node_cost;
use graph::{Node, Program, TensorId};
use kernels::Role;

use super::canvas::{Area, Canvas, INK, PALE, Style};
use super::{colours, spoken_bytes};

const TOP: f64 = 128.0;
const ROW: f64 = 48.0;
const BOX: f64 = 37.0;
/// Left edge and width of the boxes of a pass: forward, backward, update.
const FORWARD: (f64, f64) = (112.0, 302.0);
const BACKWARD: (f64, f64) = (502.0, 298.0);
const UPDATE: (f64, f64) = (112.0, 688.0);
/// Lanes are vertical: a connection between boxes that are not neighbours runs along one. Distance
/// from the boxes to the innermost lane, and between lanes.
const LANE: f64 = 13.0;
/// Colours of lanes.
const LINES: [&str; 7] =
    ["#2f6db3", "#8250df", "#9a6700", "#0f7b6c", "#b3261e", "#57606a", "#bf3989"];

/// The nodes of one model part in one pass, drawn as one box.
#[derive(Debug)]
struct Group {
    pass: Pass,
    part: String,
    /// Its row, counted from the top.
    row: usize,
    nodes: usize,
    flops: u64,
    /// Its output tensors that other groups read.
    handed: BTreeSet<TensorId>,
    /// Bytes of forward tensors that a backward group reads.
    kept_bytes: usize,
    /// Bytes of weight gradients that it writes.
    weight_bytes: usize,
}

/// Draws a program under a title, with a box for each part of the model in each pass.
pub fn program_picture(title: &str, program: &Program, target: &Target) -> String {
    let (groups, edges) = groups(program, target);
    let rows = groups.iter().map(|group| group.row + 1).max().unwrap_or(0);
    let shown = format!(
        "{} nodes in {} boxes. Each box: nodes and FLOPs; below, the largest tensor that other \
         boxes read.",
        program.nodes().len(),
        groups.len(),
    );
    let mut canvas = Canvas::new(TOP + rows as f64 * ROW + 14.0, title, &[&shown]);
    let [forward, backward, update] = [Pass::Forward, Pass::Backward, Pass::Update];
    let has = |pass| groups.iter().any(|group| group.pass == pass);
    let mut legend = vec![(colours(forward).0, "forward, from top to bottom")];
    if has(backward) {
        legend.push((colours(backward).0, "backward, from bottom to top"));
        legend.push((colours(update).0, "gradients of weights, for the update"));
    }
    canvas.legend(20.0, 80.0, &legend);
    if has(backward) {
        let x = (FORWARD.0 + FORWARD.1 + BACKWARD.0) / 2.0;
        canvas.text(x, TOP - 20.0, Style::SMALL.middle(), "read again");
        canvas.text(x, TOP - 7.0, Style::SMALL.middle(), "by the gradient");
    }
    draw_lines(&mut canvas, &groups, &edges, Pass::Forward);
    draw_lines(&mut canvas, &groups, &edges, Pass::Backward);
    groups.iter().for_each(|group| draw_box(&mut canvas, program, target, group));
    canvas.finish()
}

/// The first two components of a dotted part name, for example a backbone's stage without its
/// block.
fn short(part: &str) -> String {
    part.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// All groups, and the pairs of groups (writer, reader), as indices.
fn groups(program: &Program, target: &Target) -> (Vec<Group>, BTreeSet<(usize, usize)>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut writer: BTreeMap<TensorId, usize> = BTreeMap::new();
    let mut edges = BTreeSet::new();
    let mut read = BTreeSet::new();
    for node in program.nodes() {
        let at = group_of(&mut groups, node);
        groups[at].nodes += 1;
        groups[at].flops += node_cost(program, node).flops;
        for input in &node.inputs {
            let Some(&from) = writer.get(input).filter(|from| **from != at) else { continue };
            edges.insert((from, at));
            groups[from].handed.insert(*input);
            let is_kept = (groups[from].pass, groups[at].pass) == (Pass::Forward, Pass::Backward);
            if is_kept && read.insert((at, *input)) {
                groups[at].kept_bytes += target.bytes(program.desc(*input));
            }
        }
        for output in &node.outputs {
            writer.insert(*output, at);
            if program.desc(*output).role == Role::WeightGradient {
                groups[at].weight_bytes += target.bytes(program.desc(*output));
            }
        }
    }
    (groups, edges)
}

/// Index of a node's group, which is created for its first node: a backward group next to its
/// forward group, any other group in a new row below.
fn group_of(groups: &mut Vec<Group>, node: &Node) -> usize {
    let part = short(&node.part);
    let known = groups.iter().position(|group| group.pass == node.pass && group.part == part);
    if let Some(known) = known {
        return known;
    }
    let beside = groups.iter().find(|group| node.pass == Pass::Backward && group.part == part);
    let below = groups.iter().map(|group| group.row + 1).max().unwrap_or(0);
    let row = beside.map_or(below, |group| group.row);
    groups.push(Group {
        pass: node.pass,
        part,
        row,
        nodes: 0,
        flops: 0,
        handed: BTreeSet::new(),
        kept_bytes: 0,
        weight_bytes: 0,
    });
    groups.len() - 1
}

fn area(group: &Group) -> Area {
    let (x, width) = match group.pass {
        Pass::Forward => FORWARD,
        Pass::Backward => BACKWARD,
        Pass::Update => UPDATE,
    };
    Area::new(x, TOP + group.row as f64 * ROW, width, BOX)
}

fn draw_box(canvas: &mut Canvas, program: &Program, target: &Target, group: &Group) {
    let area = area(group);
    let (strong, light) = colours(group.pass);
    canvas.boxed(area, light, strong);
    canvas.text(area.x + 9.0, area.y + 15.0, Style::HEADING, &group.part);
    let nodes = if group.nodes == 1 { "node" } else { "nodes" };
    let work = format!("{} {nodes}{}", group.nodes, spoken_flops(group.flops));
    let right = area.x + area.width - 9.0;
    canvas.text(right, area.y + 15.0, Style::SMALL.end(), &work);
    canvas.text(area.x + 9.0, area.y + 30.0, Style::SMALL, &handed(program, target, group));
    if group.weight_bytes > 0 {
        let bytes = spoken_bytes(group.weight_bytes);
        canvas.text(right - 14.0, area.y + 30.0, Style::SMALL.end(), &bytes);
        let mark = Area::new(right - 9.0, area.y + 21.0, 9.0, 9.0);
        canvas.rect(mark, colours(Pass::Update).0);
    }
    if group.kept_bytes > 0 {
        let (from, to) = (FORWARD.0 + FORWARD.1, BACKWARD.0);
        let y = area.y + BOX / 2.0 + 5.0;
        canvas.arrow(&format!("M{:.1} {y:.1}H{:.1}", from + 2.0, to - 1.0), PALE, 1.0);
        let bytes = spoken_bytes(group.kept_bytes);
        canvas.text((from + to) / 2.0, y - 5.0, Style::SMALL.middle().fill(INK), &bytes);
    }
}

/// Text with the group's largest tensor that other groups read, and the number of additional ones.
fn handed(program: &Program, target: &Target, group: &Group) -> String {
    if group.pass == Pass::Update {
        return "reads the gradients of all weights; writes weights, momentum, loss scale".into();
    }
    let for_update = |id: &&TensorId| program.desc(**id).role == Role::WeightGradient;
    let largest = group.handed.iter().filter(|id| !for_update(id));
    let count = largest.clone().count();
    let bytes = |id: &&TensorId| (target.bytes(program.desc(**id)), std::cmp::Reverse(**id));
    let Some(largest) = largest.max_by_key(bytes) else { return String::new() };
    let more = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
    format!("{:?}{more}", program.desc(*largest))
}

fn spoken_flops(flops: u64) -> String {
    match flops as f64 / 1e9 {
        gflop if gflop >= 999.5 => format!(", {:.1} TFLOP", gflop / 1e3),
        gflop if gflop >= 9.5 => format!(", {gflop:.0} GFLOP"),
        gflop if gflop >= 0.05 => format!(", {gflop:.1} GFLOP"),
        _ => String::new(),
    }
}

/// The lines from one group to several groups on its side of the picture.
struct Bundle {
    from: usize,
    /// The groups that the lines lead to, except the next group.
    to: Vec<usize>,
    lane: usize,
}

/// Draws the lines of one pass: straight to the next group, to all others along a lane at the side.
fn draw_lines(canvas: &mut Canvas, groups: &[Group], edges: &BTreeSet<(usize, usize)>, pass: Pass) {
    let on_side = |at: usize| {
        groups[at].pass == pass || (pass == Pass::Forward && groups[at].pass == Pass::Update)
    };
    let rows: BTreeMap<usize, usize> =
        (0..groups.len()).filter(|at| on_side(*at)).map(|at| (groups[at].row, at)).collect();
    let mut bundles = Vec::new();
    for &from in rows.values() {
        let row = groups[from].row;
        let neighbour = match pass {
            Pass::Backward => rows.range(..row).next_back(),
            _ => rows.range(row + 1..).next(),
        };
        let readers = edges.iter().filter(|(writer, to)| *writer == from && on_side(*to));
        let (near, to): (Vec<usize>, Vec<usize>) =
            readers.map(|(_, to)| *to).partition(|to| neighbour.is_some_and(|n| n.1 == to));
        for to in near {
            let (a, b) = (area(&groups[from]), area(&groups[to]));
            let x = a.x + a.width.min(b.width) / 2.0;
            let (start, end) =
                if a.y < b.y { (a.y + BOX, b.y - 1.0) } else { (a.y, b.y + BOX + 1.0) };
            canvas.arrow(&format!("M{x:.1} {start:.1}V{end:.1}"), PALE, 1.4);
        }
        if !to.is_empty() {
            bundles.push(Bundle { from, to, lane: 0 });
        }
    }
    assign_lanes(groups, &mut bundles);
    draw_bundles(canvas, groups, &bundles, pass);
}

/// First and last row of a bundle.
fn span(groups: &[Group], bundle: &Bundle) -> (usize, usize) {
    let rows = bundle.to.iter().chain([&bundle.from]).map(|at| groups[*at].row);
    (rows.clone().min().unwrap_or(0), rows.max().unwrap_or(0))
}

/// Assigns lanes: short bundles get inner lanes, and bundles that overlap vertically get different
/// lanes.
fn assign_lanes(groups: &[Group], bundles: &mut [Bundle]) {
    bundles.sort_by_key(|bundle| {
        let (first, last) = span(groups, bundle);
        (last - first, first)
    });
    for i in 0..bundles.len() {
        let (first, last) = span(groups, &bundles[i]);
        let meets = |other: &Bundle| {
            let (f, l) = span(groups, other);
            f <= last && first <= l
        };
        let taken: BTreeSet<usize> =
            bundles[..i].iter().filter(|other| meets(other)).map(|other| other.lane).collect();
        bundles[i].lane = (0..).find(|lane| !taken.contains(lane)).unwrap_or(0);
    }
}

fn draw_bundles(canvas: &mut Canvas, groups: &[Group], bundles: &[Bundle], pass: Pass) {
    // At a box, incoming lines end above outgoing lines, so that they do not coincide.
    let height = |at: usize, position: usize, count: usize| {
        area(&groups[at]).y + BOX * (position + 1) as f64 / (count + 1) as f64
    };
    for (i, bundle) in bundles.iter().enumerate() {
        let colour = LINES[bundle.lane % LINES.len()];
        let shift = LANE * (bundle.lane + 1) as f64;
        let edge = |at: usize| {
            let area = area(&groups[at]);
            if pass == Pass::Backward { area.x + area.width } else { area.x }
        };
        let x = if pass == Pass::Backward { edge(bundle.from) + shift } else { FORWARD.0 - shift };
        let meeting = |at: usize| -> Vec<usize> {
            let incoming = (0..bundles.len()).filter(|b| bundles[*b].to.contains(&at));
            let outgoing = (0..bundles.len()).filter(|b| bundles[*b].from == at);
            incoming.chain(outgoing).collect()
        };
        let place = |at: usize| {
            let all = meeting(at);
            height(at, all.iter().position(|b| *b == i).unwrap_or(0), all.len())
        };
        let start = place(bundle.from);
        for &to in &bundle.to {
            let (from_x, to_x, end) = (edge(bundle.from), edge(to), place(to));
            let path = format!("M{from_x:.1} {start:.1}H{x:.1}V{end:.1}H{to_x:.1}");
            canvas.arrow(&path, colour, 1.2);
        }
    }
}
