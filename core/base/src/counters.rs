//! Event counters of a node: a struct of numbers that can be listed and added up.

/// Defines a struct of counters, each with its documentation: `counters! { /// … pub struct Name; /// … first, /// … second, }`.
///
/// Counters that are read while others increment them have another type of number, and a function that reads it:
/// `pub struct Name: AtomicU64, read by load;`. They can't be added up.
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* pub struct $counters:ident; $($(#[$doc:meta])* $name:ident,)*) => {
        $crate::counters! {
            $(#[$about])*
            #[derive(Clone, Copy, PartialEq, Eq)]
            pub struct $counters: u64, read by u64::clone;
            $($(#[$doc])* $name,)*
        }

        impl $counters {
            /// Adds the values of another set of counters.
            pub fn add(&mut self, other: &$counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
    ($(#[$about:meta])* pub struct $counters:ident: $number:ty, read by $read:path; $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Debug, Default)]
        pub struct $counters {
            $($(#[$doc])* pub $name: $number,)*
        }

        impl $counters {
            /// Names and values, in a fixed order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), $read(&self.$name)),)*]
            }
        }
    };
}
