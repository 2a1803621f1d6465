//! Names of the variants of enums without fields, as commands, descriptions and figures use them.

/// Names the variants of an enum: `names!(Mode { One => "one", Two => "two" })` defines `ALL`, in this order, `name` and what
/// [`by_name`](crate::by_name) adds.
#[macro_export]
macro_rules! names {
    ($named:ident { $($variant:ident => $name:literal),* } $(or $unknown:ident)?) => {
        impl $named {
            /// All of them, in the order in which they are listed.
            pub const ALL: [$named; [$($name),*].len()] = [$($named::$variant),*];

            /// The name in commands, descriptions and figures.
            pub fn name(self) -> &'static str {
                match self {
                    $($named::$variant => $name,)*
                }
            }
        }

        $crate::by_name!($named $(or $unknown)?);
    };
}

/// Displays an enum that has `ALL` and `name` by its name, and finds it by that. `or Unknown`: it can also be parsed, and `Unknown` is the error,
/// with the text.
#[macro_export]
macro_rules! by_name {
    ($named:ident $(or $unknown:ident)?) => {
        impl $named {
            pub fn from_name(name: &str) -> Option<$named> {
                $named::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl std::fmt::Display for $named {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        $(impl std::str::FromStr for $named {
            type Err = $unknown;

            fn from_str(text: &str) -> Result<$named, $unknown> {
                $named::from_name(text).ok_or_else(|| $unknown(text.to_string()))
            }
        })?
    };
}
