//! How tiles lie in shared memory, against its 32 banks: without crossing, and as
//! `kernels/src/cuda/gemm/tile.cuh` crosses them.

use engine::picture::{Area, Canvas, GROUND, PALE, Style};

/// The formulas of the picture, which must be the kernels'.
const SOURCE: &str = include_str!("../../../kernels/src/cuda/gemm/tile.cuh");
const FORMULAS: [&str; 4] = [
    "constexpr int CHUNK = 8;",
    "constexpr int DEPTH = 32;",
    "return line * DEPTH + ((chunk ^ (line >> 1)) & 3) * CHUNK;",
    "return line * EXTENT + (chunk ^ (line & 7)) * CHUNK;",
];

/// Halves of a chunk, of 16 bytes: what four banks give at once.
const CHUNK: usize = 8;
/// Values of k in a k-block.
const DEPTH: usize = 32;
/// Columns of the small tile.
const EXTENT: usize = 64;
/// Groups of four banks.
const GROUPS: usize = 8;

const CELL: (f64, f64) = (49.0, 22.0);
const READ: &str = "#2f6db3";
const CROWDED: &str = "#b3261e";

/// Where a chunk of a line begins, in halves.
type Layout = fn(line: usize, chunk: usize) -> usize;

fn rows_plain(line: usize, chunk: usize) -> usize {
    line * DEPTH + chunk * CHUNK
}

fn rows_crossed(line: usize, chunk: usize) -> usize {
    line * DEPTH + ((chunk ^ (line >> 1)) & 3) * CHUNK
}

fn columns_plain(line: usize, chunk: usize) -> usize {
    line * EXTENT + chunk * CHUNK
}

fn columns_crossed(line: usize, chunk: usize) -> usize {
    line * EXTENT + (chunk ^ (line & 7)) * CHUNK
}

pub(crate) fn picture() -> String {
    for formula in FORMULAS {
        assert!(SOURCE.contains(formula), "tile.cuh has no more `{formula}`: draw what it does");
    }
    let notes = [
        "ldmatrix reads eight lines at a time, a chunk of 16 bytes of each. Chunks of different \
         bank groups come together,",
        "chunks of one group one after the other. Each cell is a chunk, named line:chunk; blue is \
         what one read takes.",
    ];
    let mut canvas = Canvas::new(585.0, "Shared memory against its 32 banks", &notes);
    let rows = DEPTH / CHUNK;
    let columns = EXTENT / CHUNK;
    let (left, right) = (22.0, 472.0);
    let plain = "side by side";
    grid(&mut canvas, (left, 118.0), &format!("RowOperand, {plain}"), rows_plain, rows);
    let crossed = "chunk ^ (line >> 1)";
    grid(&mut canvas, (right, 118.0), &format!("RowOperand, {crossed}"), rows_crossed, rows);
    grid(&mut canvas, (left, 314.0), &format!("ColumnOperand, {plain}"), columns_plain, columns);
    let crossed = "chunk ^ (line & 7)";
    let title = format!("ColumnOperand, {crossed}");
    grid(&mut canvas, (right, 314.0), &title, columns_crossed, columns);
    canvas.finish()
}

/// Eight lines of `chunks` chunks each, with chunk 0 of each line marked, and how many of those
/// come out of each group of banks.
fn grid(canvas: &mut Canvas, (x, y): (f64, f64), title: &str, layout: Layout, chunks: usize) {
    let (width, height) = CELL;
    canvas.text(x, y, Style::HEADING, title);
    for group in 0..GROUPS {
        let banks = format!("{}-{}", 4 * group, 4 * group + 3);
        let middle = x + (group as f64 + 0.5) * width;
        canvas.text(middle, y + 20.0, Style::SMALL.middle(), &banks);
    }
    let mut reads = [0; GROUPS];
    let mut bottom: f64 = 0.0;
    for line in 0..8 {
        for chunk in 0..chunks {
            let cell = layout(line, chunk) / CHUNK;
            let (row, group) = (cell / GROUPS, cell % GROUPS);
            let is_read = chunk == 0;
            reads[group] += usize::from(is_read);
            let top = y + 27.0 + row as f64 * height;
            bottom = bottom.max(top + height);
            let left = x + group as f64 * width;
            let area = Area::new(left + 1.0, top + 1.0, width - 2.0, height - 2.0);
            canvas.rect(area, if is_read { READ } else { GROUND });
            let style = Style::SMALL.middle().fill(if is_read { "#ffffff" } else { PALE });
            canvas.text(left + width / 2.0, top + 15.0, style, &format!("{line}:{chunk}"));
        }
    }
    let most = reads.into_iter().max().unwrap_or(0);
    for (group, count) in reads.into_iter().enumerate() {
        let style = Style::PLAIN.middle().fill(if count > 1 { CROWDED } else { PALE });
        let middle = x + (group as f64 + 0.5) * width;
        canvas.text(middle, bottom + 17.0, style, &format!("{count}x"));
    }
    let verdict = match most {
        1 => "every group once: one pass".to_string(),
        most => format!("{most} chunks of one group: {most} passes"),
    };
    let fill = if most > 1 { CROWDED } else { READ };
    canvas.text(x, bottom + 36.0, Style::PLAIN.fill(fill), &verdict);
}

#[test]
fn eight_lines_have_each_chunk_in_eight_groups() {
    for layout in [(rows_crossed as Layout, DEPTH / CHUNK), (columns_crossed, EXTENT / CHUNK)] {
        let (place, chunks) = layout;
        for chunk in 0..chunks {
            let mut groups: Vec<_> =
                (0..8).map(|line| place(line, chunk) / CHUNK % GROUPS).collect();
            groups.sort_unstable();
            assert_eq!(groups, (0..GROUPS).collect::<Vec<_>>(), "chunk {chunk}");
        }
    }
}
