//! Signals to a process that uses files: this process sends them to another, a shell that asks for a file again and again.

use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Each `[ -e … ]` is a system call, which fails if a signal ends it.
const SCRIPT: &str = r#"
    trap : USR1
    echo ready
    for number in {1..2000}; do
        [ -e "$1" ] || { echo "the file was not there at attempt $number"; exit 1; }
    done
"#;

/// Sends signals to a shell that asks for this file, until it ends. All its requests must succeed.
pub fn disturb_a_shell(file: &Path) {
    let mut shell = Command::new("bash")
        .args(["-c", SCRIPT, "bash"])
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut stdout = shell.stdout.take().expect("it is piped");
    stdout.read_exact(&mut [0; 6]).expect("it says `ready`");
    let pid = Pid::from_child(&shell);
    while !has_ended(&mut shell) {
        kill_process(pid, Signal::USR1).expect("it is not awaited yet");
        std::thread::sleep(Duration::from_micros(50));
    }
    let mut text = String::new();
    stdout.read_to_string(&mut text).expect("it is text");
    assert!(shell.wait().expect("it has ended").success(), "{text}");
}

fn has_ended(shell: &mut Child) -> bool {
    shell.try_wait().expect("it is a child").is_some()
}
