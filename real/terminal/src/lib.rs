//! Code that the command-line programs share (`braid`, `braid bench`, `braid-sim`): arguments, output, progress bars, signals.
//!
//! | module | what |
//! | --- | --- |
//! | [`arguments`] | arguments that every command takes, and parsers of sizes, rates, times and orderings |
//! | `limited_log` | the log on standard error, in which no line is repeated more than once a minute |
//! | [`outline`] | the outline of a command line, for completion by another program |
//! | [`output`] | text or JSON on standard output, progress bars, tables, error reports |
//! | [`signals`] | Ctrl-C and SIGTERM |

pub mod arguments;
mod limited_log;
pub mod outline;
pub mod output;
pub mod signals;

pub use arguments::Common;
pub use limited_log::log_to_stderr;
pub use signals::Signals;

/// Tells people something on standard error, formatted like the argument of `format!`. Unlike `eprintln!`, it does not panic if that fails.
#[macro_export]
macro_rules! tell {
    ($($text:tt)*) => { $crate::output::tell(&format!($($text)*)) };
}

/// The same without the end of the line, for questions.
#[macro_export]
macro_rules! ask {
    ($($text:tt)*) => { $crate::output::ask(&format!($($text)*)) };
}

/// What `--version` prints behind the name of the program: the release, and the cargo profile that it was built with.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (profile ", env!("BRAID_PROFILE"), ")");
