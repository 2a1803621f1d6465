//! Code that the command-line programs share (`braid`, `braid bench`, `braid-sim`): arguments, output, progress bars, signals.
//!
//! | module | what |
//! | --- | --- |
//! | [`arguments`] | arguments that every command takes, and parsers of sizes, rates, times and orderings |
//! | [`output`] | text or JSON on standard output, progress bars, tables, error reports |
//! | [`signals`] | Ctrl-C and SIGTERM; the end together with the parent process |

pub mod arguments;
pub mod output;
pub mod signals;

pub use arguments::Common;
pub use signals::Signals;

/// Logs to standard error: warnings, or what `RUST_LOG` asks for.
pub fn log_to_stderr() {
    use std::io::IsTerminal;
    use tracing_subscriber::EnvFilter;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn")))
        .with_target(false)
        .init();
}

/// What `--version` prints behind the name of the program: the release, and the cargo profile that it was built with.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (profile ", env!("BRAID_PROFILE"), ")");
