//! A guest, its disk, and the host of that.

use crate::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, UdpSocket};

const SCRIPT: &str = include_str!("guest.sh");
const LOAD: &str = include_str!("load.py");
const WIDE_REGISTERS: &str = include_str!("wide_registers.c");
const START_WAIT: Duration = Duration::from_secs(30);

/// What is common to both guests.
pub struct Machine<'a> {
    braid: PathBuf,
    array: PathBuf,
    folder: PathBuf,
    /// UDP ports, by which the guests' network cards reach one another.
    ports: [u16; 2],
    interrupt: &'a Interrupt,
}

/// What a guest does: the name that its script knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Make,
    Work,
    Check,
}

pub struct Guest<'a> {
    machine: &'a Machine<'a>,
    which: usize,
    /// How often it has begun to work.
    life: u32,
    host: Option<Process>,
    disk: Process,
    kernel: Option<Process>,
}

impl<'a> Machine<'a> {
    pub fn new(braid: &Path, array: &Path, folder: &Path, interrupt: &'a Interrupt) -> Result<Machine<'a>> {
        std::fs::create_dir(folder.join("share"))?;
        for (name, text) in [("guest.sh", SCRIPT), ("load.py", LOAD), ("wide_registers.c", WIDE_REGISTERS)] {
            std::fs::write(folder.join(name), text)?;
        }
        std::fs::set_permissions(folder.join("guest.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC", "-o"]).arg(wide_registers(folder));
        let built = compiler.arg(folder.join("wide_registers.c")).status().context("cc can't be started")?;
        ensure!(built.success(), "cc can't build a library for the guests' kernel");
        // Two ports that were free a moment ago; no other process is expected to take them.
        let sockets = [UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?];
        let ports = [sockets[0].local_addr()?.port(), sockets[1].local_addr()?.port()];
        let [braid, array, folder] = [braid, array, folder].map(Path::to_path_buf);
        Ok(Machine { braid, array, folder, ports, interrupt })
    }

    /// Tells the guests to end their work.
    pub fn stop(&self) -> Result<()> {
        Ok(std::fs::write(self.folder.join("share/stop"), "")?)
    }

    /// What the check has found.
    pub fn verdict(&self) -> String {
        std::fs::read_to_string(self.folder.join("share/verdict")).unwrap_or_default()
    }
}

impl<'a> Guest<'a> {
    pub fn new(machine: &'a Machine<'a>, which: usize) -> Result<Guest<'a>> {
        let host = start_host(machine, which)?;
        let disk = start_disk(machine, which)?;
        Ok(Guest { machine, which, life: 0, host: Some(host), disk, kernel: None })
    }

    pub fn boot(&mut self, task: Task) -> Result<()> {
        let Machine { folder, ports, .. } = self.machine;
        let (which, at) = (self.which, folder.display());
        self.life += u32::from(task == Task::Work);
        let (name, life) = match task {
            Task::Make => ("make", 0),
            Task::Work => ("work", self.life),
            // One of the guests was killed in each life but the last ones.
            Task::Check => (
                "check",
                super::FAULTS.iter().filter(|fault| matches!(fault, super::Fault::Guest(_))).count() as u32 + 2,
            ),
        };
        let _ = std::fs::remove_file(self.said());
        let mut kernel = Command::new("linux.uml");
        kernel.args(["mem=512M", "quiet", "rootfstype=hostfs", "rootflags=/", "ro"]);
        kernel.args(["con=null", "con0=null,fd:1", "con1=null", "ssl=null"]);
        kernel.args([format!("uml_dir={at}/uml"), format!("umid=guest{which}"), format!("init={at}/guest.sh")]);
        kernel.arg(format!("virtio_uml.device={}:2", socket(self.machine, "disk", which).display()));
        kernel.arg(format!(
            "vec0:transport=l2tpv3,udp=1,src=127.0.0.1,srcport={},dst=127.0.0.1,dstport={},rx_session=0x1,tx_session=0x1",
            ports[which],
            ports[1 - which]
        ));
        kernel.args([format!("braid.guest={which}"), format!("braid.task={name}"), format!("braid.life={life}")]);
        kernel.args([format!("braid.share={at}/share"), format!("braid.load={at}/load.py")]);
        // The guest's memory is a file there.
        kernel.env("TMPDIR", folder).env("LD_PRELOAD", wide_registers(folder));
        self.kernel = Some(Process::start(&mut kernel, &folder.join(format!("guest{which}-{name}-{life}.log")))?);
        Ok(())
    }

    /// Waits until the guest has done what it was to do.
    pub fn ended(&mut self, task: Task, most: Duration) -> Result<()> {
        let mut kernel = self.kernel.take().context("the guest is not up")?;
        kernel.status(most, self.machine.interrupt)?;
        let said = std::fs::read_to_string(self.said()).unwrap_or_default();
        let name = format!("{task:?}").to_lowercase();
        if said.trim() != format!("{name} 0") {
            bail!("guest {}: {said}{}\n{}", self.which, self.machine.verdict(), kernel.said());
        }
        Ok(())
    }

    /// Fails if one of its processes has ended that was not killed.
    pub fn check(&mut self) -> Result<()> {
        self.disk.check()?;
        self.host.iter_mut().chain(&mut self.kernel).try_for_each(Process::check)
    }

    /// How many operations it has acknowledged, in all of its lives.
    pub fn done(&self) -> Result<usize> {
        let mut done = 0;
        for file in std::fs::read_dir(self.machine.folder.join("share"))? {
            let path = file?.path();
            if path.to_string_lossy().contains(&format!("/done-{}-", self.which)) {
                done += std::fs::read_to_string(path)?.lines().count();
            }
        }
        Ok(done)
    }

    pub fn kill(&mut self) -> Result<()> {
        // The kernel, and the processes in which those of the guest run.
        self.kernel.take().context("the guest is not up")?.kill_group()
    }

    pub fn kill_host(&mut self) -> Result<()> {
        kill(self.host.take().context("the host is not up")?.id() as i32)
    }

    /// Starts what was killed.
    pub fn begin_again(&mut self) -> Result<()> {
        if self.host.is_none() {
            self.host = Some(start_host(self.machine, self.which)?);
        }
        if self.kernel.is_none() {
            self.boot(Task::Work)?;
        }
        Ok(())
    }

    fn said(&self) -> PathBuf {
        self.machine.folder.join(format!("share/said-{}", self.which))
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        // It does not end by SIGTERM.
        if self.kernel.is_some() {
            let _ = self.kill();
        }
    }
}

pub fn kill(pid: i32) -> Result<()> {
    kill_process(Pid::from_raw(pid).context("a process has a number")?, Signal::KILL)
        .context("a process can't be killed")
}

/// The library by which the guests' kernel runs on processors with more registers than it knows.
fn wide_registers(folder: &Path) -> PathBuf {
    folder.join("wide_registers.so")
}

fn socket(machine: &Machine, name: &str, which: usize) -> PathBuf {
    machine.folder.join(format!("{name}{which}"))
}

fn start_host(machine: &Machine, which: usize) -> Result<Process> {
    let at = socket(machine, "nbd", which);
    let _ = std::fs::remove_file(&at);
    let mut host = Command::new(&machine.braid);
    host.args(["nbd", "--volume", "vol0", "--listen", &format!("unix:{}", at.display())]);
    host.arg("--array").arg(&machine.array);
    started(machine, &mut host, &format!("nbd{which}"), &at)
}

/// The disk connects to the host again when that was killed.
fn start_disk(machine: &Machine, which: usize) -> Result<Process> {
    let (at, host) = (socket(machine, "disk", which), socket(machine, "nbd", which));
    let mut disk = Command::new("qemu-storage-daemon");
    let node =
        "driver=nbd,node-name=volume,export=vol0,reconnect-delay=120,open-timeout=60,server.type=unix,server.path=";
    disk.args(["--blockdev", &format!("{node}{}", host.display())]);
    let export = "type=vhost-user-blk,id=disk,node-name=volume,writable=on,addr.type=unix,addr.path=";
    disk.args(["--export", &format!("{export}{}", at.display())]);
    started(machine, &mut disk, &format!("disk{which}"), &at)
}

fn started(machine: &Machine, command: &mut Command, name: &str, socket: &Path) -> Result<Process> {
    let mut process = Process::start(command, &machine.folder.join(format!("{name}.log")))?;
    let listens = |_: &Process| Ok(socket.exists().then_some(()));
    process.until(START_WAIT, machine.interrupt, "it did not listen", listens)?;
    Ok(process)
}
