//! The declaration of an op.

/// Declares an op: its parameters, its inputs, and its outputs.
///
/// It generates the parameter struct, a struct of the named inputs (see `op_inputs!`), and the
/// [`Contract`](crate::contract::Contract). The rest is implemented by hand in
/// [`Kernel`](crate::contract::Kernel). An input has a [`Kind`](crate::contract::Kind) and a shape,
/// an output a [`Role`](crate::Role) and a shape; a parameter may be followed by a condition and by
/// a description of valid values for the error. `optional` inputs have a presence condition; `each`
/// declares lists of equal length that follow the other inputs, `lists` declares lists that precede
/// them.
///
/// ```
/// # use device::{Launch, LaunchArgs};
/// # use kernels::contract::Kernel;
/// # use kernels::cpu::CpuArgs;
/// # use kernels::{Op, Role, TensorDesc};
/// kernels::op! {
///     /// Adds a bias to each row.
///     pub struct AddBias = "add_bias" {
///         /// Factor of the bias.
///         pub factor: f32 [|factor| factor.is_finite(), "a number"],
///     }
///     in AddBiasInputs {
///         /// Rows.
///         x: real "[M, C]",
///         /// A value for each column.
///         bias: f32 "[C]",
///     }
///     out {
///         /// Rows with the bias.
///         y: Activation "[M, C]",
///     }
/// }
/// # impl Kernel for AddBias {
/// #     fn launches(&self, _: &LaunchArgs<'_>) -> Vec<Launch> { vec![] }
/// #     fn run_cpu(&self, _: &mut CpuArgs<'_>) {}
/// # }
/// let x = TensorDesc::new(Role::Activation, &[2, 3]);
/// let bias = TensorDesc::new(Role::Master, &[4]);
/// let error = AddBias { factor: 1.0 }.infer(&[x, bias], &[]).unwrap_err().to_string();
/// assert_eq!(error, "add_bias: bias should have shape [C] with C = 3, got [4]");
/// ```
#[macro_export]
macro_rules! op {
    (
        $(#[$meta:meta])*
        $vis:vis struct $op:ident = $name:literal $parameters:tt
        $(lists {
            $($(#[$list_doc:meta])* $list:ident: $list_kind:ident $list_shape:literal,)+
        })?
        $(in $inputs:ident {
            $($(#[$input_doc:meta])* $input:ident: $kind:ident $shape:literal,)*
        })?
        $(optional {
            $($(#[$optional_doc:meta])* $optional:ident: $optional_kind:ident
                $optional_shape:literal if $present:expr,)+
        })?
        $(each {
            $($(#[$each_doc:meta])* $each:ident: $each_kind:ident $each_shape:literal,)+
        })?
        out { $($(#[$output_doc:meta])* $output:ident: $role:ident $output_shape:literal,)* }
    ) => {
        $crate::op! {
            @parameters
            [$(#[$meta])* $(
                #[doc = ""]
                #[doc = concat!("Output `", stringify!($output), " ", $output_shape, "`, ",
                    stringify!($role), ":")]
                $(#[$output_doc])*
            )*]
            $vis $op $parameters
        }
        $crate::op! {
            @inputs [#[doc = concat!("The inputs of [`", stringify!($op), "`].")]] $vis
            $([lists $($(#[$list_doc])* #[doc = ""]
                #[doc = concat!("`", $list_shape, "` ", stringify!($list_kind), ".")]
                $list,)+])?
            $($inputs [$($(#[$input_doc])* #[doc = ""]
                #[doc = concat!("`", $shape, "` ", stringify!($kind), ".")] $input,)*])?
            $([optional $($(#[$optional_doc])* #[doc = ""]
                #[doc = concat!("`", $optional_shape, "` ", stringify!($optional_kind), ".")]
                $optional,)+])?
            $([each $($(#[$each_doc])* #[doc = ""]
                #[doc = concat!("`", $each_shape, "` ", stringify!($each_kind), ".")]
                $each,)+])?
        }

        impl $crate::contract::Declared for $op {
            const CONTRACT: $crate::contract::Contract = $crate::contract::Contract {
                op: $name,
                inputs: &[$($($crate::contract::Tensor {
                    name: stringify!($input),
                    kind: $crate::contract::Kind::$kind,
                    shape: $shape,
                },)*)?],
                optional: &[$($($crate::contract::Tensor {
                    name: stringify!($optional),
                    kind: $crate::contract::Kind::$optional_kind,
                    shape: $optional_shape,
                },)+)?],
                each: &[
                    $($($crate::contract::Tensor {
                        name: stringify!($list),
                        kind: $crate::contract::Kind::$list_kind,
                        shape: $list_shape,
                    },)+)?
                    $($($crate::contract::Tensor {
                        name: stringify!($each),
                        kind: $crate::contract::Kind::$each_kind,
                        shape: $each_shape,
                    },)+)?
                ],
                lists_first: {
                    let lists: &[&str] = &[$($(stringify!($list),)+)?];
                    !lists.is_empty()
                },
                outputs: &[$($crate::contract::Output {
                    role: $crate::Role::$role,
                    shape: $output_shape,
                },)*],
            };

            $(fn optional(&self) -> Vec<bool> {
                vec![$({ let present: fn(&$op) -> bool = $present; present(self) }),+]
            })?

            $crate::op! { @check $name $parameters }
        }

        $crate::op! { @op $op }
    };
    (@op $op:ident) => {
        impl $crate::Op for $op {
            fn name(&self) -> &'static str {
                <Self as $crate::contract::Declared>::CONTRACT.op
            }

            fn infer(
                &self,
                inputs: &[$crate::TensorDesc],
                updates: &[$crate::TensorDesc],
            ) -> Result<Vec<$crate::TensorDesc>, $crate::OpError> {
                $crate::contract::infer(self, inputs, updates)
            }

            fn cost(
                &self,
                inputs: &[$crate::TensorDesc],
                outputs: &[$crate::TensorDesc],
            ) -> $crate::Cost {
                $crate::contract::Kernel::cost(self, inputs, outputs)
            }

            fn traits(&self) -> $crate::Traits {
                $crate::contract::Kernel::traits(self)
            }

            fn backward(
                &self,
                inputs: &[$crate::TensorDesc],
                _outputs: &[$crate::TensorDesc],
            ) -> $crate::BackwardRule {
                $crate::contract::Kernel::backward(self, inputs)
            }

            fn cpu_workspace_len(
                &self,
                inputs: &[$crate::TensorDesc],
                _outputs: &[$crate::TensorDesc],
            ) -> usize {
                $crate::contract::Kernel::cpu_workspace_len(self, inputs)
            }

            fn cuda_workspace_bytes(
                &self,
                _gpu: &::device::Gpu,
                inputs: &[$crate::TensorDesc],
                _outputs: &[$crate::TensorDesc],
            ) -> usize {
                $crate::contract::Kernel::cuda_workspace_bytes(self, inputs)
            }

            fn fused(&self, fusion: $crate::Fusion) -> Option<$crate::OpRef> {
                $crate::contract::Kernel::fused(self, fusion)
            }

            fn launches(&self, args: &::device::LaunchArgs<'_>) -> Vec<::device::Launch> {
                $crate::contract::launches(self, args)
            }

            fn run_cpu(&self, args: &mut $crate::cpu::CpuArgs<'_>) {
                $crate::contract::Kernel::run_cpu(self, args);
            }
        }
    };
    (@parameters [$($meta:tt)*] $vis:vis $op:ident {}) => {
        $($meta)*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $op;
    };
    (@parameters [$($meta:tt)*] $vis:vis $op:ident {
        $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty
            $([$condition:expr, $expected:literal])?,)+
    }) => {
        $($meta)*
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $op { $($(#[$doc])* $field_vis $field: $type,)+ }
    };
    (@check $name:literal {
        $($(#[$doc:meta])* $field_vis:vis $field:ident: $type:ty
            $([$condition:expr, $expected:literal])?,)*
    }) => {
        fn bind_parameters(&self, dims: &mut $crate::contract::Dims) {
            let _ = &dims;
            $(dims.bind_parameter(stringify!($field), &self.$field);)*
        }

        fn check_parameters(&self) -> Result<(), $crate::OpError> {
            $($({
                let condition: fn(&$type) -> bool = $condition;
                let (name, got) = (stringify!($field), format!("{:?}", self.$field));
                $crate::check::parameter($name, name, condition(&self.$field), $expected, got)?;
            })?)*
            Ok(())
        }
    };
    (@inputs [$($meta:tt)*] $vis:vis) => {};
    (
        @inputs [$($meta:tt)*] $vis:vis
        $inputs:ident [$($single:tt)*] [optional $($optional:tt)*]
    ) => {
        $crate::op_inputs! {
            $($meta)* $vis struct $inputs { $($single)* }
            optional { $($optional)* }
        }
    };
    (
        @inputs [$($meta:tt)*] $vis:vis
        $([lists $($list:tt)*])? $inputs:ident [$($single:tt)*] $([each $($each:tt)*])?
    ) => {
        $crate::op_inputs! {
            $($meta)* $vis struct $inputs $(lists { $($list)* })? { $($single)* }
            $(each { $($each)* })?
        }
    };
}
