//! Event counters of a node: a struct of numbers that can be listed and added up.

/// Defines a struct of counters, each with its documentation: `counters! { /// … pub struct Name; /// … first, /// … second, }`.
#[macro_export]
macro_rules! counters {
    ($(#[$about:meta])* pub struct $counters:ident; $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $counters {
            /// Names and values, in a fixed order.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Adds the values of another set of counters.
            pub fn add(&mut self, other: &$counters) {
                $(self.$name += other.$name;)*
            }
        }
    };
}
