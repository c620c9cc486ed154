//! The instruction set for GEMMs and convolutions on the CPU: the widest available, or the one
//! named in `ONEGRAPH_CPU_ISA`.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::env::VarError;
use std::sync::OnceLock;

/// The environment variable that selects an instruction set in place of the widest, for
/// comparisons.
const VARIABLE: &str = "ONEGRAPH_CPU_ISA";

thread_local! {
    static WITHIN: Cell<Option<Isa>> = const { Cell::new(None) };
    static PRODUCTS: Cell<GemmSettings> = const { Cell::new(GemmSettings::PLAIN) };
}

/// An instruction set that this processor supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// AVX-512 F.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// AVX2 with FMA.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// The instructions that the program was compiled for.
    Portable(Portable),
}

/// Proof that the processor has AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx512(());

/// Proof that the processor has AVX-512 with bf16 dot products.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx512Bf16(());

#[cfg(target_arch = "x86_64")]
impl Avx512Bf16 {
    /// The proof, if the processor supports these instructions.
    pub(crate) fn new() -> Option<Self> {
        let has = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
        has.then_some(Self(()))
    }

    /// The instruction set for all arithmetic except bf16 dot products.
    pub(crate) fn isa(self) -> Isa {
        Isa::Avx512(Avx512(()))
    }
}

/// True if AVX-512 is the instruction set in use and has bf16 dot products.
pub fn has_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return matches!(Isa::get(), Isa::Avx512(_)) && Avx512Bf16::new().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Settings of GEMMs and convolutions on the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GemmSettings {
    /// Operands are rounded to bf16, if the processor supports it.
    pub bf16: bool,
    /// 3x3 convolutions use Winograd F(2x2, 3x3) where it is faster.
    pub winograd: bool,
}

impl GemmSettings {
    /// In f32, without Winograd.
    pub const PLAIN: Self = Self { bf16: false, winograd: false };

    /// Runs `f`; GEMMs and convolutions that this thread starts meanwhile use these settings in
    /// place of [`Self::PLAIN`].
    pub fn within<R>(self, f: impl FnOnce() -> R) -> R {
        struct Before(GemmSettings);
        impl Drop for Before {
            fn drop(&mut self) {
                PRODUCTS.set(self.0);
            }
        }
        let _before = Before(PRODUCTS.replace(self));
        f()
    }
}

/// The proof that the processor supports bf16, if this thread's [`GemmSettings`] enable it.
#[cfg(target_arch = "x86_64")]
pub(crate) fn bf16() -> Option<Avx512Bf16> {
    if PRODUCTS.get().bf16 && has_bf16() { Avx512Bf16::new() } else { None }
}

/// True if this thread's [`GemmSettings`] enable Winograd convolutions.
pub(crate) fn winograd() -> bool {
    PRODUCTS.get().winograd
}

/// Proof that the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Avx2(());

/// No proof is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portable;

/// A requested instruction set that is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{VARIABLE} is `{wish}`; set it to one that this processor supports: {}", list(.had))]
pub struct IsaError {
    /// The variable's value.
    pub wish: String,
    /// The instruction sets of the processor.
    pub had: Vec<Isa>,
}

fn list(had: &[Isa]) -> String {
    had.iter().map(Isa::name).collect::<Vec<_>>().join(", ")
}

impl Isa {
    /// The instruction sets of this processor, the widest first.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                all.push(Self::Avx512(Avx512(())));
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(Self::Avx2(Avx2(())));
            }
        }
        all.push(Self::Portable(Portable));
        all
    }

    /// The instruction set that GEMMs use: the widest, or the value of `ONEGRAPH_CPU_ISA`, which is
    /// read once.
    ///
    /// # Errors
    /// The variable is not one of [`Isa::all`].
    pub fn chosen() -> Result<Self, IsaError> {
        static CHOSEN: OnceLock<Result<Isa, IsaError>> = OnceLock::new();
        CHOSEN
            .get_or_init(|| match std::env::var(VARIABLE) {
                Ok(wish) => Self::named(&wish),
                Err(VarError::NotPresent) => Self::named(""),
                Err(VarError::NotUnicode(wish)) => Self::named(&wish.to_string_lossy()),
            })
            .clone()
    }

    /// The instruction set of the active [`Isa::within`] on this thread, else [`Isa::chosen`].
    /// Panics if the latter is an error; commands check this at their start.
    pub(crate) fn get() -> Self {
        WITHIN.get().unwrap_or_else(|| Self::chosen().unwrap_or_else(|e| panic!("{e}")))
    }

    /// Runs `f`; GEMMs that this thread starts meanwhile use this instruction set and
    /// [`GemmSettings::PLAIN`].
    pub fn within<R>(self, f: impl FnOnce() -> R) -> R {
        let before = WITHIN.replace(Some(self));
        let result = GemmSettings::PLAIN.within(f);
        WITHIN.set(before);
        result
    }

    /// Its name in `ONEGRAPH_CPU_ISA`.
    pub fn name(&self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "avx2",
            Self::Portable(_) => "portable",
        }
    }

    fn named(wish: &str) -> Result<Self, IsaError> {
        let all = Self::all();
        let found = all.iter().find(|isa| wish.is_empty() || isa.name() == wish).copied();
        found.ok_or(IsaError { wish: wish.to_string(), had: all })
    }
}

/// Defines a function that is compiled for each instruction set; its first argument selects the
/// version that runs. Results are bit-identical: no operations are fused, and no sum is reordered.
/// Functions that it calls are compiled for each instruction set only if they are always inlined.
macro_rules! wide {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $([$(const $size:ident),*])? ($($arg:ident: $type:ty),* $(,)?)
        $body:block
    ) => {
        $(#[$meta])*
        #[allow(unsafe_code)]
        $vis fn $name $(<$(const $size: usize),*>)? (isa: $crate::isa::Isa, $($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            fn avx512 $(<$(const $size: usize),*>)? ($($arg: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2 $(<$(const $size: usize),*>)? ($($arg: $type),*) $body

            fn portable $(<$(const $size: usize),*>)? ($($arg: $type),*) $body

            match isa {
                // SAFETY: the value proves that the processor has the features.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx512(_) => unsafe {
                    avx512 $(::<$($size),*>)? ($($arg),*)
                },
                // SAFETY: the value proves that the processor has the features.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2(_) => unsafe { avx2 $(::<$($size),*>)? ($($arg),*) },
                $crate::isa::Isa::Portable(_) => portable $(::<$($size),*>)? ($($arg),*),
            }
        }
    };
}
pub(crate) use wide;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widest_instruction_set_is_chosen() {
        let all = Isa::all();
        assert_eq!(Isa::named(""), Ok(all[0]));
        assert_eq!(all.last().map(Isa::name), Some("portable"));
        for isa in &all {
            assert_eq!(Isa::named(isa.name()), Ok(*isa));
        }
    }

    #[test]
    fn unknown_instruction_set_prints_one_line_error() {
        let message = Isa::named("sse9").unwrap_err().to_string();
        assert!(message.starts_with("ONEGRAPH_CPU_ISA is `sse9`; set it to"), "{message}");
        assert!(message.ends_with("portable"), "{message}");
    }
}
