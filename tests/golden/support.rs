//! Reads golden families and reports the errors of onegraph's results.
//!
//! ```text
//! each_case("conv2d", 2e-5, |report, case| {
//!     report.compare(case, "y", &compute(&case.f32("x"), case.usize("stride")));
//! });
//! ```

// Each test target that includes this file uses only part of it.
#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A tensor of a golden file.
#[derive(Debug, Clone)]
pub(crate) struct Tensor<T> {
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Vec<T>,
}

/// One golden file: its cases and their tensors.
pub(crate) struct Family {
    name: String,
    bytes: Vec<u8>,
    cases: serde_json::Map<String, Value>,
}

/// One case of a family.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    family: &'a Family,
    name: &'a str,
    attributes: &'a Value,
}

/// The golden folder: `$ONEGRAPH_GOLDEN`, else `shared/golden` next to the checkout.
pub(crate) fn golden_dir() -> PathBuf {
    shared_dir("ONEGRAPH_GOLDEN", "golden")
}

/// The folder of real data: `$ONEGRAPH_DATA`, else `shared/data` next to the checkout.
pub(crate) fn data_dir() -> PathBuf {
    shared_dir("ONEGRAPH_DATA", "data")
}

fn shared_dir(variable: &str, name: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(name),
    }
}

/// Reports that a test did not run, bypassing the harness, which captures the output of passing
/// tests.
pub(crate) fn skipped(why: &str) {
    writeln!(std::io::stderr(), "SKIPPED: {why}").expect("stderr takes a line");
}

/// The path of a file or folder that a test needs; if it is missing, prints a `SKIPPED` line and
/// returns `None`.
pub(crate) fn need(path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    skipped(&format!("{} is absent", path.display()));
    None
}

/// A JSON file of the golden folder; `None`, with a message, if it is missing.
pub(crate) fn golden_json(name: &str) -> Option<Value> {
    let text = std::fs::read(need(golden_dir().join(name))?).expect("a file");
    Some(serde_json::from_slice(&text).expect("JSON"))
}

impl Family {
    /// Opens `<golden folder>/<name>.safetensors`; `None`, with a message, if it is missing.
    pub(crate) fn open(name: &str) -> Option<Self> {
        let path = need(golden_dir().join(format!("{name}.safetensors")))?;
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (_, header) = SafeTensors::read_metadata(&bytes)
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let cases = header.metadata().as_ref().and_then(|m| m.get("cases"));
        let cases = cases.unwrap_or_else(|| panic!("{}: metadata has no cases", path.display()));
        let cases = serde_json::from_str(cases).expect("metadata cases is a JSON object");
        Some(Family { name: name.to_owned(), bytes, cases })
    }

    /// The cases, by name.
    pub(crate) fn cases(&self) -> impl Iterator<Item = Case<'_>> {
        self.cases.iter().map(|(name, attributes)| Case { family: self, name, attributes })
    }

    /// One case by its name.
    pub(crate) fn case(&self, name: &str) -> Case<'_> {
        self.cases()
            .find(|case| case.name == name)
            .unwrap_or_else(|| panic!("{}: no case {name}", self.name))
    }

    /// The names of all tensors, `<case>/<tensor>` (weights have no case).
    pub(crate) fn keys(&self) -> Vec<String> {
        self.tensors().names().into_iter().map(str::to_owned).collect()
    }

    /// A tensor by its full key.
    pub(crate) fn tensor<T: bytemuck::Pod + Element>(&self, key: &str) -> Tensor<T> {
        let tensors = self.tensors();
        let view = tensors.tensor(key).unwrap_or_else(|e| panic!("{}: {key}: {e}", self.name));
        assert_eq!(view.dtype(), T::DTYPE, "{}: dtype of {key}", self.name);
        Tensor { shape: view.shape().to_vec(), data: bytemuck::pod_collect_to_vec(view.data()) }
    }

    fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.bytes).expect("header was read before")
    }
}

/// The element types in golden files.
pub(crate) trait Element {
    const DTYPE: Dtype;
}
impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;
}
impl Element for f64 {
    const DTYPE: Dtype = Dtype::F64;
}
impl Element for i32 {
    const DTYPE: Dtype = Dtype::I32;
}
impl Element for u8 {
    const DTYPE: Dtype = Dtype::U8;
}

impl<'a> Case<'a> {
    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    /// The case's attributes from the metadata.
    pub(crate) fn attributes(&self) -> &'a Value {
        self.attributes
    }

    /// A required attribute.
    pub(crate) fn attribute(&self, name: &str) -> &'a Value {
        self.attributes.get(name).unwrap_or_else(|| panic!("{}: no attribute {name}", self.name))
    }

    /// A list of strings among the attributes.
    pub(crate) fn texts(&self, name: &str) -> Vec<&'a str> {
        let list = self.attribute(name).as_array().expect("a list");
        list.iter().map(|text| text.as_str().expect("a text")).collect()
    }

    pub(crate) fn usize(&self, name: &str) -> usize {
        let value = self.attribute(name);
        value.as_u64().unwrap_or_else(|| panic!("{}: {name} is {value}", self.name)) as usize
    }

    pub(crate) fn float(&self, name: &str) -> f64 {
        let value = self.attribute(name);
        value.as_f64().unwrap_or_else(|| panic!("{}: {name} is {value}", self.name))
    }

    /// All cases of the case's family.
    pub(crate) fn siblings(&self) -> impl Iterator<Item = Case<'a>> {
        self.family.cases()
    }

    /// The names of the case's tensors.
    pub(crate) fn tensors(self) -> impl Iterator<Item = String> {
        let own =
            move |key: String| key.strip_prefix(self.name)?.strip_prefix('/').map(str::to_owned);
        self.family.keys().into_iter().filter_map(own)
    }

    /// The recorded values of a tensor, and their stride: 1 if all values were recorded.
    pub(crate) fn every(self, name: &str) -> (usize, Vec<f32>) {
        let stride = |key: &str| match key.strip_suffix(name)?.strip_suffix('/') {
            None => (key == name).then_some(1),
            Some("full") => Some(1),
            Some(thinned) => thinned.strip_prefix("every")?.parse().ok(),
        };
        let found = self.tensors().find_map(|key| Some((stride(&key)?, self.f32(&key).data)));
        found.unwrap_or_else(|| panic!("{}: no {name}", self.name))
    }

    /// True if the case contains this tensor, completely or in part.
    pub(crate) fn has_some(self, name: &str) -> bool {
        self.tensors().any(|key| key == name || key.ends_with(&format!("/{name}")))
    }

    /// True if the case has this tensor.
    pub(crate) fn has(&self, tensor: &str) -> bool {
        self.family.tensors().tensor(&self.key(tensor)).is_ok()
    }

    pub(crate) fn f32(&self, tensor: &str) -> Tensor<f32> {
        self.family.tensor(&self.key(tensor))
    }

    pub(crate) fn f64(&self, tensor: &str) -> Tensor<f64> {
        self.family.tensor(&self.key(tensor))
    }

    pub(crate) fn i32(&self, tensor: &str) -> Tensor<i32> {
        self.family.tensor(&self.key(tensor))
    }

    pub(crate) fn u8(&self, tensor: &str) -> Tensor<u8> {
        self.family.tensor(&self.key(tensor))
    }

    fn key(&self, tensor: &str) -> String {
        format!("{}/{tensor}", self.name)
    }
}

impl Tensor<i32> {
    /// The values as indices.
    pub(crate) fn indices(&self) -> Vec<usize> {
        self.data.iter().map(|&v| usize::try_from(v).expect("an index is not negative")).collect()
    }
}

/// Compares each case of a family; prints a message and returns if the family is missing.
pub(crate) fn each_case(family: &str, tolerance: f64, compare: impl FnMut(&mut Report, Case<'_>)) {
    cases_of(family, "", tolerance, compare);
}

/// Like [`each_case`], but only for cases whose names begin with this prefix.
pub(crate) fn cases_of(
    family: &str,
    start: &str,
    tolerance: f64,
    mut compare: impl FnMut(&mut Report, Case<'_>),
) {
    let Some(golden) = Family::open(family) else { return };
    let mut report = Report::new(family, tolerance);
    for case in golden.cases().filter(|case| case.name().starts_with(start)) {
        let not_due = report.not_due;
        compare(&mut report, case);
        report.cases += usize::from(report.not_due == not_due);
    }
    report.finish();
}

/// Tracks the maximum error of a golden family, and fails on the first error above the tolerance.
pub(crate) struct Report {
    family: String,
    tolerance: f64,
    cases: usize,
    not_due: usize,
    worst: f64,
}

impl Report {
    /// `tolerance` bounds |err| / max|ref| of every tensor given to [`Report::close`].
    pub(crate) fn new(family: &str, tolerance: f64) -> Self {
        let family = family.to_owned();
        Report { family, tolerance, cases: 0, not_due: 0, worst: 0.0 }
    }

    /// Compares floats: the largest |err| over the largest |ref| of the tensor (absolute where
    /// the reference is all zero). NaN fails.
    pub(crate) fn close<A, B>(&mut self, case: &str, tensor: &str, got: &[A], want: &[B])
    where
        A: Copy + Into<f64>,
        B: Copy + Into<f64>,
    {
        self.close_within(case, tensor, got, want, self.tolerance);
    }

    /// Like [`Report::close`], with a tolerance for this tensor.
    pub(crate) fn close_within<A, B>(
        &mut self,
        case: &str,
        tensor: &str,
        got: &[A],
        want: &[B],
        tolerance: f64,
    ) where
        A: Copy + Into<f64>,
        B: Copy + Into<f64>,
    {
        let family = &self.family;
        assert_eq!(got.len(), want.len(), "golden {family}: {case}/{tensor}: number of values");
        let largest = want.iter().map(|&w| w.into().abs()).fold(0.0, f64::max);
        let scale = if largest > 0.0 { largest } else { 1.0 };
        for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
            let (got, want): (f64, f64) = (got.into(), want.into());
            // Compare first: the difference of two equal infinities is NaN.
            let error = if got == want { 0.0 } else { (got - want).abs() / scale };
            assert!(
                error <= tolerance,
                "golden {family}: {case}/{tensor}[{i}]: got {got:e}, expected {want:e}, \
                 error {error:.2e} (tolerance {tolerance:.0e})"
            );
            self.worst = self.worst.max(error);
        }
    }

    /// Compares floats with the tensor of this name.
    pub(crate) fn compare<A: Copy + Into<f64>>(&mut self, case: Case<'_>, tensor: &str, got: &[A]) {
        self.compare_within(case, tensor, got, self.tolerance);
    }

    /// Like [`Report::compare`], with a tolerance for this tensor.
    pub(crate) fn compare_within<A: Copy + Into<f64>>(
        &mut self,
        case: Case<'_>,
        tensor: &str,
        got: &[A],
        tolerance: f64,
    ) {
        self.close_within(case.name(), tensor, got, &case.f32(tensor).data, tolerance);
    }

    /// Compares with the tensor of this name, which must be equal.
    pub(crate) fn equal<T>(&mut self, case: Case<'_>, tensor: &str, got: &[T])
    where
        T: bytemuck::Pod + Element + PartialEq + std::fmt::Debug,
    {
        self.exact(case.name(), tensor, got, &case.family.tensor(&case.key(tensor)).data);
    }

    /// Compares values that must be equal: indices, labels, masks, strings.
    pub(crate) fn exact<T>(&mut self, case: &str, tensor: &str, got: &[T], want: &[T])
    where
        T: PartialEq + std::fmt::Debug,
    {
        let family = &self.family;
        assert_eq!(got.len(), want.len(), "golden {family}: {case}/{tensor}: number of values");
        if let Some(i) = (0..got.len()).find(|&i| got[i] != want[i]) {
            panic!(
                "golden {family}: {case}/{tensor}[{i}]: got {:?}, expected {:?} exactly",
                got[i], want[i]
            );
        }
    }

    /// Counts a case whose tensors have all been compared.
    pub(crate) fn done_case(&mut self) {
        self.cases += 1;
    }

    /// Counts a case of a feature that is not implemented, for the summary line of the family.
    pub(crate) fn not_due(&mut self) {
        self.not_due += 1;
    }

    /// Prints the summary line of the family. Fails if the family has no cases.
    pub(crate) fn finish(self) {
        let Report { family, tolerance, cases, not_due, worst } = self;
        assert!(cases > 0, "golden {family}: the file holds no case");
        let rest = if not_due > 0 { format!(", {not_due} not due") } else { String::new() };
        println!(
            "golden {family}: {cases} cases, worst error {worst:.1e} (tolerance {tolerance:.0e})\
             {rest}"
        );
    }
}
