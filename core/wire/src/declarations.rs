//! The macros by which messages are declared together with their encodings, and with arbitrary values for property tests.
//! A struct is its fields in the order of their declaration; an enum is one byte for the variant, then the fields of that variant.

/// Declares structs and enums with their encodings. A struct is its fields, in the order of their declaration; an enum is the byte behind the
/// variant, then the fields of that variant.
macro_rules! wire {
    () => {};
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty),* $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type),*
        }
        const _: () = {
            use $crate::any::{Any, Source};
            use $crate::codec::{Reader, Wire, WireError, Writer};
            use $crate::declarations::{wire_fields, wire_struct};
            wire_struct!($name { $($field),* });
        };
        $crate::declarations::wire! { $($rest)* }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $(
                $(#[$variant_meta:meta])*
                $variant:ident
                    $({ $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)? })?
                    $(($inner:ident: $inner_type:ty))?
                    = $byte:literal
            ),* $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        pub enum $name {
            $(
                $(#[$variant_meta])*
                $variant $({ $($(#[$field_meta])* $field: $type),* })? $(($inner_type))?
            ),*
        }
        const _: () = {
            use $crate::any::{Any, Source};
            use $crate::codec::{Reader, Wire, WireError, Writer};
            $crate::declarations::wire_enum!($name { $($byte => $variant $({ $($field),* })? $(($inner))?),* });
        };
        $crate::declarations::wire! { $($rest)* }
    };
}

/// The encoding of a struct: its fields. What is decoded must be sound.
macro_rules! wire_fields {
    ($name:ident { $($field:ident),* } $(, $what:literal if not $is_sound:expr)*) => {
        impl Wire for $name {
            fn put(&self, to: &mut Writer) {
                $(self.$field.put(to);)*
            }
            fn take(from: &mut Reader) -> Result<Self, WireError> {
                let value = $name { $($field: Wire::take(from)?),* };
                $(
                    let is_sound: fn(&$name) -> bool = $is_sound;
                    if !is_sound(&value) {
                        return Err(WireError::BadValue { what: $what });
                    }
                )*
                Ok(value)
            }
        }
    };
}

/// A struct of which any fields are sound.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* }) => {
        wire_fields!($name { $($field),* });
        impl Any for $name {
            fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
                $name { $($field: Any::any(of, stringify!($field))),* }
            }
        }
    };
}

/// A struct around one number.
macro_rules! wire_newtype {
    ($($name:ident),*) => {$(
        impl Wire for $name {
            fn put(&self, to: &mut Writer) {
                self.0.put(to);
            }
            fn take(from: &mut Reader) -> Result<Self, WireError> {
                Ok($name(Wire::take(from)?))
            }
        }
        impl Any for $name {
            fn any<S: Source>(of: &mut S, field: &'static str) -> Self {
                $name(of.number(stringify!($name), field) as _)
            }
        }
    )*};
}

/// An enum: a byte for the variant, then its fields.
macro_rules! wire_enum {
    ($name:ident { $($byte:literal => $choice:ident $({ $($field:ident),* })? $(( $inner:ident ))?),* $(,)? }) => {
        impl Wire for $name {
            fn put(&self, to: &mut Writer) {
                match self {
                    $($name::$choice $({ $($field),* })? $(($inner))? => {
                        ($byte as u8).put(to);
                        $($($field.put(to);)*)?
                        $($inner.put(to);)?
                    })*
                }
            }
            fn take(from: &mut Reader) -> Result<Self, WireError> {
                match u8::take(from)? {
                    $($byte => Ok($name::$choice
                        $({ $($field: Wire::take(from)?),* })?
                        $(({ let $inner = Wire::take(from)?; $inner }))?
                    ),)*
                    _ => Err(WireError::BadValue { what: stringify!($name) }),
                }
            }
        }
        impl Any for $name {
            fn any<S: Source>(of: &mut S, _field: &'static str) -> Self {
                let variants: &[fn(&mut S) -> Self] = &[$(|_of| $name::$choice
                    $({ $($field: Any::any(_of, stringify!($field))),* })?
                    $(({ let $inner = Any::any(_of, stringify!($inner)); $inner }))?
                ),*];
                variants[of.variant(stringify!($name), &[$(stringify!($choice)),*])](of)
            }
        }
    };
}

pub(crate) use {wire, wire_enum, wire_fields, wire_newtype, wire_struct};
