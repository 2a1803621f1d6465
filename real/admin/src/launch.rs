//! Bringing an array up: starting the program `braid`, which runs the array after this program has ended.

use crate::array::Array;
use crate::array_creation::CreateOptions;
use crate::failure::Failure;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// How long an array may take to start: somewhat longer than `braid up` waits for its devices.
const UP_WAIT: Duration = Duration::from_secs(150);

/// How to bring an array up.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// The program `braid`.
    pub program: PathBuf,
    /// The parameters of the array, if it does not exist; otherwise it must have these.
    pub create: CreateOptions,
    /// The port for NBD clients on 127.0.0.1; 0 for any free port.
    pub port: u16,
}

impl UpOptions {
    /// The defaults: NBD clients use any free port.
    pub fn new(program: impl AsRef<Path>) -> UpOptions {
        UpOptions { program: program.as_ref().to_path_buf(), create: CreateOptions::default(), port: 0 }
    }
}

impl Array {
    /// Brings the array up: starts `braid up` in a process of its own, which continues when this program ends, and logs to the standard
    /// error of this program. Returns when the volumes are served, with the number of that process; [`Array::down`] stops it. If this
    /// future is dropped before that, the process is killed. Errors: those of `braid up`, such as `already-up` and `arguments-differ`;
    /// `up-slow` if it takes too long.
    pub async fn up(&self, options: &UpOptions) -> Result<u32, Failure> {
        let UpOptions { program, create, port } = options;
        let mut command = Command::new(program);
        // What is asked for here needs no confirmation.
        command.args(["up", "--yes", "--json", "--port", &port.to_string(), "--dir"]).arg(self.control().place());
        command.args(arguments(create)?).env_remove("BRAID_ARRAY");
        // Signals of this program's terminal are not for the array.
        command.process_group(0);
        Ok(start(command).await?.0)
    }
}

/// Starts `braid up`, by a command that asks for JSON. Returns the process and what it announces once the array is ready. If this future is
/// dropped before that, the process is killed.
pub async fn start(mut command: Command) -> Result<(u32, Value), Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let program = command.as_std().get_program().to_owned();
    let spawned = command.spawn().map_err(|error| Failure::from(error).of(program.display()));
    let mut started = Started(Some(spawned?));
    let ready = tokio::time::timeout(UP_WAIT, started.ready()).await;
    let ready = ready.unwrap_or_else(|_| {
        Err(Failure::unreachable("up-slow", format!("the array did not start within {UP_WAIT:?}")))
    })?;
    started.0 = None;
    Ok(ready)
}

/// A process that is killed unless it has become ready.
struct Started(Option<Child>);

impl Started {
    async fn ready(&mut self) -> Result<(u32, Value), Failure> {
        let child = self.0.as_mut().expect("it was just started");
        let pid = child.id().expect("it was not waited for");
        let output = child.stdout.take().expect("it is a pipe");
        Ok((pid, ready(child, &mut BufReader::new(output)).await?))
    }
}

/// Waits until a process announces that it is ready, and returns its announcement.
pub async fn ready(child: &mut Child, output: &mut BufReader<ChildStdout>) -> Result<Value, Failure> {
    let mut line = String::new();
    output.read_line(&mut line).await?;
    let said: Value = serde_json::from_str(&line).unwrap_or_default();
    if said["ready"] == true {
        return Ok(said);
    }
    let status = child.wait().await?;
    Err(Failure::from_json(&said, status.code())
        .unwrap_or_else(|| Failure::failed("up-failed", format!("it ended with {status} before it was ready"))))
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended by itself.
            let _ = child.start_kill();
        }
    }
}

/// The arguments of `braid up` for these parameters.
fn arguments(create: &CreateOptions) -> Result<Vec<String>, Failure> {
    let options = create.options(&CreateOptions::default().creation()?).into_iter();
    let volumes = create.volumes.iter().map(|(name, size)| ("--volume", Some(format!("{name}:{size}"))));
    let asked = options.map(|(option, asked, _)| (option, asked)).chain(volumes);
    Ok(asked.filter_map(|(option, asked)| Some([option.to_string(), asked?])).flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_arguments() {
        assert_eq!(arguments(&CreateOptions::default()), Ok(Vec::new()));
        let create = CreateOptions {
            devices: Some(3),
            volumes: vec![("a".to_string(), 4096)],
            lease: Some(Duration::from_secs(1)),
            ..CreateOptions::default()
        };
        assert_eq!(arguments(&create).unwrap().join(" "), "--devices 3 --lease 1s --volume a:4096");
    }
}
