//! Each lesson of `graph/examples` runs and prints the expected last line.

use std::error::Error;
use std::io::Write;

/// A lesson as a module: its `main` is only for `cargo run --example`.
macro_rules! lessons {
    ($($path:literal $name:ident)+) => {
        $(#[allow(dead_code)] #[path = $path] mod $name;)+
    };
}

lessons! {
    "../examples/01_first_program.rs" first_program
    "../examples/02_gradient.rs" gradient
    "../examples/03_memory_plan.rs" memory_plan
    "../examples/04_capture.rs" capture
    "../examples/05_race_refused.rs" race_refused
    "../examples/06_own_op.rs" own_op
}

type Lesson = fn(&mut dyn Write) -> Result<(), Box<dyn Error>>;

#[test]
fn every_example_ends_with_documented_line() {
    let lessons: [(Lesson, &str); 6] = [
        (first_program::lesson, "z = x + relu(x w^T + b) = [3.0, 5.0, 3.0, 9.0, 11.0, 6.0]"),
        (gradient::lesson, "15 gradients up to 0.57 agree to 1e-4"),
        (memory_plan::lesson, "arena 114944 bytes; 180736 without sharing; 82176 alive at once"),
        (
            capture::lesson,
            "5 steps: 5 graph launches, 5 copies, 0 single launches, 0 waits, 0 allocations",
        ),
        (race_refused::lesson, "on one stream: captured, 2 kernels"),
        (own_op::lesson, "relu: x should hold F32, got I32 (Index)"),
    ];
    let endings = lessons.map(|(lesson, ending)| {
        let mut text = vec![];
        lesson(&mut text).expect("a lesson that ends well");
        let text = String::from_utf8(text).expect("UTF-8");
        print!("{text}");
        (text.lines().last().unwrap_or_default().to_string(), ending)
    });
    for (last, ending) in endings {
        assert_eq!(last, ending);
    }
}
