//! Names of commands that people try, and the commands that they mean: the tip of a usage error.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use clap::{Command, Error};
use std::ffi::OsString;

/// What is meant, and what is tried.
const MEANT: [(&str, &[&str]); 12] = [
    ("fs status", &["fs list", "fs info", "fs show"]),
    ("fs resize", &["fs grow"]),
    ("fs mount", &["mount"]),
    ("fs unmount", &["umount", "unmount"]),
    ("volume info", &["volume status", "volume show"]),
    ("volume resize", &["volume grow"]),
    ("device list", &["device status"]),
    ("device replace", &["replace"]),
    ("host list", &["host status"]),
    ("status", &["list", "info"]),
    ("up", &["start"]),
    ("down", &["stop"]),
];

/// Puts the command that is meant into an error about one that does not exist, instead of one with a similar name.
pub fn correct(mut error: Error, arguments: &[OsString], commands: &Command) -> Error {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let before = arguments.iter().take_while(|argument| *argument != wrong.as_str());
    let group = before.filter(|argument| commands.find_subcommand(argument).is_some()).last();
    let tried = group.map_or(wrong.clone(), |group| format!("{} {wrong}", group.to_string_lossy()));
    if let Some((meant, _)) = MEANT.iter().find(|(_, names)| names.contains(&tried.as_str())) {
        error.remove(ContextKind::SuggestedSubcommand);
        let tip = StyledStr::from(format!("use `braid {meant}`"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

#[cfg(test)]
mod tests {
    use super::MEANT;
    use crate::commands::{Cli, parse};
    use braid_terminal::arguments::sentence;
    use clap::CommandFactory;

    #[test]
    fn a_wrong_name_gets_the_command_that_is_meant() {
        for (meant, tried) in MEANT.iter().flat_map(|(meant, names)| names.iter().map(move |tried| (meant, tried))) {
            let words = format!("braid --json {tried}");
            let said = sentence(&parse(&words.split(' ').map(Into::into).collect::<Vec<_>>()).err().unwrap());
            assert!(said.ends_with(&format!("' tip: use `braid {meant}`")), "{said}");
            let found = meant.split(' ').try_fold(Cli::command(), |group, name| group.find_subcommand(name).cloned());
            assert!(found.is_some(), "{meant}");
        }
    }
}
