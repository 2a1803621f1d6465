//! The outline of a program's command line, which another program can read: `braid completions` completes `braid sim …`, although `braid`
//! does not contain the simulator.

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command};
use serde_json::{Value, json};

/// The outline of a command: its name, its options and arguments, and its subcommands. Options of all commands are left out.
pub fn of(command: &Command) -> Value {
    let arguments = command.get_arguments().filter(|argument| !argument.is_global_set() && !argument.is_hide_set());
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    json!({
        "name": command.get_name(),
        "about": command.get_about().map(ToString::to_string),
        "arguments": arguments.map(of_argument).collect::<Vec<_>>(),
        "commands": commands.map(of).collect::<Vec<_>>(),
    })
}

fn of_argument(argument: &Arg) -> Value {
    let values = argument.get_possible_values();
    json!({
        "id": argument.get_id().as_str(),
        "help": argument.get_help().map(ToString::to_string),
        "long": argument.get_long(),
        "short": argument.get_short(),
        "values": values.iter().map(PossibleValue::get_name).collect::<Vec<_>>(),
        "takes_value": argument.get_action().takes_values(),
    })
}

/// The command with this outline; none if it is not an outline. Its texts are kept until the program ends.
pub fn to_command(outline: &Value) -> Option<Command> {
    let mut command = Command::new(text(&outline["name"])?);
    if let Some(about) = text(&outline["about"]) {
        command = command.about(about);
    }
    for argument in outline["arguments"].as_array()? {
        command = command.arg(to_argument(argument)?);
    }
    outline["commands"]
        .as_array()?
        .iter()
        .try_fold(command, |command, inner| Some(command.subcommand(to_command(inner)?)))
}

fn to_argument(outline: &Value) -> Option<Arg> {
    let (long, short) = (text(&outline["long"]), text(&outline["short"]).and_then(|short| short.chars().next()));
    let mut argument = Arg::new(text(&outline["id"])?);
    if let Some(help) = text(&outline["help"]) {
        argument = argument.help(help);
    }
    if let Some(long) = long {
        argument = argument.long(long);
    }
    if let Some(short) = short {
        argument = argument.short(short);
    }
    if !outline["takes_value"].as_bool()? {
        return Some(argument.action(ArgAction::SetTrue));
    }
    let values: Vec<&'static str> = outline["values"].as_array()?.iter().filter_map(text).collect();
    Some(if values.is_empty() { argument } else { argument.value_parser(values) })
}

/// A text of an outline, for as long as the program runs: clap takes texts of no shorter life.
fn text(value: &Value) -> Option<&'static str> {
    value.as_str().map(|text| &*text.to_string().leak())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_outline_that_it_was_made_from() {
        let inner = Command::new("attack")
            .about("Attack arrays")
            .arg(Arg::new("seeds").help("The seeds"))
            .arg(Arg::new("threads").long("threads").short('t'))
            .arg(Arg::new("kind").long("kind").value_parser(["quick", "whole"]))
            .arg(Arg::new("keep_going").long("keep-going").action(ArgAction::SetTrue));
        let command = Command::new("sim").arg(Arg::new("json").long("json").global(true)).subcommand(inner);
        let outline = of(&command);
        let again = to_command(&outline).unwrap();
        assert_eq!(of(&again), outline);
        assert_eq!(outline["commands"][0]["arguments"].as_array().map(Vec::len), Some(4));
        again.debug_assert();
        assert!(to_command(&json!({"schema": 2})).is_none());
    }
}
