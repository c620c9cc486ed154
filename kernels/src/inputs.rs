//! Named inputs, for ops with too many inputs to address by position.

/// Declares the inputs of an op as a struct, generic over the tensor type: the fields are the op's
/// inputs, in order, with optional ones after the word `optional`. The struct converts to the input
/// list that a program expects, and its `of` names the tensors of such a list.
#[macro_export]
macro_rules! op_inputs {
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident { $($(#[$field_doc:meta])* $field:ident,)+ }
        optional { $($(#[$optional_doc:meta])* $optional:ident,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        $vis struct $name<T> {
            $($(#[$field_doc])* pub $field: T,)+
            $($(#[$optional_doc])* pub $optional: Option<T>,)+
        }

        impl<T> From<$name<T>> for Vec<T> {
            fn from(inputs: $name<T>) -> Self {
                let mut list = vec![$(inputs.$field),+];
                $(list.extend(inputs.$optional);)+
                list
            }
        }

        impl $name<()> {
            /// Minimum number of inputs.
            pub const LEN: usize = [$(stringify!($field)),+].len();
        }

        impl<'a, T> $name<&'a T> {
            /// Names the tensors of a list; `has` is true for each optional tensor that the list
            /// contains.
            ///
            /// Panics if the list is too short, which the op's contract has already ruled out.
            pub fn of(list: &'a [T], has: [bool; [$(stringify!($optional)),+].len()]) -> Self {
                let [$($field,)+ rest @ ..] = list else {
                    panic!("{} tensors are too few for {}", list.len(), stringify!($name))
                };
                let mut rest = rest.iter();
                let [$($optional),+] = has.map(|has| if has { rest.next() } else { None });
                Self { $($field,)+ $($optional),+ }
            }
        }
    };
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident
        $(lists { $($(#[$list_doc:meta])* $list:ident,)+ })?
        { $($(#[$field_doc:meta])* $field:ident,)* }
        $(each { $($(#[$each_doc:meta])* $each:ident,)+ })?
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        $vis struct $name<T> {
            $($($(#[$list_doc])* pub $list: Vec<T>,)+)?
            $($(#[$field_doc])* pub $field: T,)*
            $($($(#[$each_doc])* pub $each: Vec<T>,)+)?
        }

        impl<T> From<$name<T>> for Vec<T> {
            fn from(inputs: $name<T>) -> Self {
                let mut list = vec![];
                $($(list.extend(inputs.$list);)+)?
                list.extend([$(inputs.$field),*]);
                $($(list.extend(inputs.$each);)+)?
                list
            }
        }

        impl $name<()> {
            /// Number of the op's inputs that are not in lists; without lists, the additional
            /// inputs of the op's gradient start at this index.
            pub const LEN: usize = <[&str]>::len(&[$(stringify!($field)),*]);
        }

        impl<'a, T> $name<&'a T> {
            /// Names the tensors of a list. The declared lists divide the tensors that are not
            /// single inputs equally among them. Without declared lists, additional tensors, such
            /// as the gradient op's own inputs, are ignored.
            ///
            /// Panics if the list is too short, which the op's contract has already ruled out.
            #[allow(unused_mut, unused_variables)]
            pub fn of(list: &'a [T]) -> Self {
                let (first, last): (&[&str], &[&str]) = (
                    &[$($(stringify!($list)),+)?],
                    &[$($(stringify!($each)),+)?],
                );
                let split = if first.is_empty() {
                    list.split_first_chunk()
                } else {
                    list.split_last_chunk().map(|(lists, single)| (single, lists))
                };
                let Some(([$($field),*], lists)) = split else {
                    panic!("{} tensors are too few for {}", list.len(), stringify!($name))
                };
                let len = lists.len() / (first.len() + last.len()).max(1);
                let lists = lists.chunks(len.max(1));
                let mut lists = lists.map(|list| list.iter().collect::<Vec<_>>());
                Self {
                    $($($list: lists.next().unwrap_or_default(),)+)?
                    $($field,)*
                    $($($each: lists.next().unwrap_or_default(),)+)?
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    op_inputs! {
        /// Three inputs.
        pub struct Three {
            /// First.
            a,
            /// Second.
            b,
            /// Third.
            c,
        }
    }

    #[test]
    fn named_inputs_follow_list_order() {
        let list: Vec<i32> = Three { c: 3, a: 1, b: 2 }.into();
        assert_eq!(list, [1, 2, 3]);
        let named = Three::of(&[4, 5, 6, 7]);
        assert_eq!((*named.a, *named.b, *named.c, Three::LEN), (4, 5, 6, 3));
    }

    op_inputs! {
        /// Two inputs, and up to two more.
        pub struct Optional {
            /// First.
            a,
            /// Second.
            b,
        }
        optional {
            /// Third, optional.
            c,
            /// Last, optional.
            d,
        }
    }

    #[test]
    fn absent_optional_inputs_are_skipped() {
        let list: Vec<i32> = Optional { a: 1, b: 2, c: None, d: Some(4) }.into();
        assert_eq!(list, [1, 2, 4]);
        let named = Optional::of(&list, [false, true]);
        assert_eq!((*named.a, *named.b, named.c, named.d), (1, 2, None, Some(&4)));
    }

    #[test]
    #[should_panic(expected = "2 tensors are too few for Three")]
    fn missing_input_is_reported() {
        let _ = Three::of(&[1, 2]);
    }
}
