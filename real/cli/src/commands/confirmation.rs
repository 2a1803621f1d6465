//! Questions at the terminal before something is done that can't be undone. Without a terminal, only an option answers them.

use braid_admin::Failure;
use std::io::IsTerminal;

/// The failure code if something was not confirmed.
pub const NOT_CONFIRMED: &str = "not-confirmed";

/// Asks whether to go on with what `facts` say. `question` names what is done then; `hint` says how it is confirmed without a terminal.
pub fn confirm(facts: &str, question: &str, hint: &str) -> Result<(), Failure> {
    match answer(&format!("{facts}. {question} [y/N] "))?.as_deref() {
        Some("y" | "Y" | "yes") => Ok(()),
        // Without an answer, nothing is done.
        Some(_) => Err(Failure::failed(NOT_CONFIRMED, "nothing was changed")),
        None => Err(Failure::usage(NOT_CONFIRMED, facts).hint(hint)),
    }
}

/// Asks for the name of what is deleted. `what` names it, `with` what is deleted with it.
pub fn confirm_deletion(what: &str, with: &str, name: &str) -> Result<(), Failure> {
    match answer(&format!("Delete {what} '{name}' with {with}? Type its name to confirm: "))? {
        Some(typed) if typed == name => Ok(()),
        Some(_) => Err(Failure::failed(NOT_CONFIRMED, format!("{what} '{name}' was not deleted"))),
        None => {
            let message = format!("this would delete {what} '{name}' with {with}");
            Err(Failure::usage(NOT_CONFIRMED, message).hint("confirm with --yes"))
        }
    }
}

/// True if somebody can be asked: there is a terminal.
pub fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// The answer to a question; none without a terminal.
fn answer(question: &str) -> Result<Option<String>, Failure> {
    if !is_possible() {
        return Ok(None);
    }
    braid_terminal::ask!("{question}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(Some(line.trim().to_string()))
}
