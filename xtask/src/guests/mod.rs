//! `cargo xtask guests`: a cluster file system of two guests on one volume, while hosts, a device and a guest are killed.
//!
//! The guests are user-mode Linux, whose kernel Debian builds with OCFS2. So nothing of this kernel is ours, nor is the file system: it relies on
//! what a shared disk must do, such as writes of one machine that the other one reads at once, and a disk that is the same after every fault.

mod guest;

use crate::compare::array::Array;
use crate::prelude::*;
use guest::{Guest, Machine, Task};

const PACKAGES: [Package; 7] = [
    ("gcc", "/usr/bin/cc"),
    ("user-mode-linux", "/usr/bin/linux.uml"),
    ("ocfs2-tools", "/sbin/mkfs.ocfs2"),
    ("qemu-system-common", "/usr/bin/qemu-storage-daemon"),
    ("kmod", "/sbin/insmod"),
    ("iproute2", "/sbin/ip"),
    ("python3", "/usr/bin/python3"),
];
const VOLUME_BYTES: u64 = 1 << 30;
/// A guest makes or checks the file system, or ends its load, within this time.
const TASK_WAIT: Duration = Duration::from_secs(240);
/// After a fault, each guest goes on within this time: OCFS2 waits a minute before it declares a node dead, and recovers its journal then.
const PROGRESS_WAIT: Duration = Duration::from_secs(300);
/// So many operations are progress.
const PROGRESS: usize = 10;

/// Test a cluster file system of two guests on one volume
///
/// Starts an array, and two guests of user-mode Linux, each with a host of its own: the guest's disk is a vhost-user device of
/// qemu-storage-daemon, which is a client of `braid nbd`. The guests mount OCFS2 from the same volume, append to the same file and replace
/// files, and read what the other one has written. Meanwhile processes are killed with `kill -9`, one after the other: the host of a guest,
/// a device, a guest, and a host together with a device. After each, both guests must go on. At the end, fsck.ocfs2 and every
/// acknowledged byte are checked.
///
/// It takes some eight minutes, 0.5 GB of memory for each guest, and root. Debian packages that are missing are installed.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// A folder for the array and the guests; it must not exist, and is removed at the end
    #[arg(long, default_value = "./braid-guests")]
    dir: PathBuf,
    /// Seconds of load before each fault
    #[arg(long, default_value_t = 45)]
    seconds: u64,
    /// Keep the folder, with the logs of the array and the guests
    #[arg(long)]
    keep: bool,
    /// Use this program instead of a build of this tree
    #[arg(long, value_name = "PATH")]
    braid: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Host(usize),
    Device(u32),
    Guest(usize),
    HostAndDevice(usize, u32),
}

const FAULTS: [Fault; 5] =
    [Fault::Host(0), Fault::Device(2), Fault::Guest(1), Fault::HostAndDevice(1, 3), Fault::Guest(0)];

pub fn test(arguments: &Arguments) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "the guests read the file system of the machine: run them as root");
    packages::install(&PACKAGES, "the guests need")?;
    let braid = crate::program(arguments.braid.as_deref(), "dev", &["braid-sim"])?;
    let interrupt = Interrupt::catch()?;
    std::fs::create_dir(&arguments.dir)
        .with_context(|| format!("{} can't be created: name another folder by --dir", arguments.dir.display()))?;
    let folder = arguments.dir.canonicalize()?;
    let mut array = Array::new(&braid, &folder, VOLUME_BYTES, &interrupt);
    let tested = array.start(0).and_then(|()| {
        let machine = Machine::new(&braid, &array.folder(), &folder, &interrupt)?;
        load(&machine, &array, Duration::from_secs(arguments.seconds), &interrupt)
    });
    drop(array);
    match &tested {
        Err(_) => eprintln!("the logs are in {}", folder.display()),
        Ok(()) if arguments.keep => {}
        Ok(()) => std::fs::remove_dir_all(&folder)?,
    }
    tested
}

fn load(machine: &Machine, array: &Array, pause: Duration, interrupt: &Interrupt) -> Result<()> {
    let begun = Instant::now();
    let say = |text: &str| println!("{:>4} s  {text}", begun.elapsed().as_secs());
    let mut guests = [Guest::new(machine, 0)?, Guest::new(machine, 1)?];
    guests[0].boot(Task::Make)?;
    guests[0].ended(Task::Make, TASK_WAIT)?;
    say("the file system is made");
    for guest in &mut guests {
        guest.boot(Task::Work)?;
    }
    progress(&mut guests, interrupt)?;
    for fault in FAULTS {
        interrupt.pause(pause)?;
        for guest in &mut guests {
            guest.check()?;
        }
        let device = |id: u32| -> Result<()> {
            let told = array.told(&["status", "--pid", &format!("d{id}")])?;
            let pid = told["pid"].as_i64().context("`braid status --pid` names no process")?;
            guest::kill(pid as i32)
        };
        match fault {
            Fault::Host(which) => guests[which].kill_host()?,
            Fault::Device(id) => device(id)?,
            Fault::Guest(which) => guests[which].kill()?,
            Fault::HostAndDevice(which, id) => {
                device(id)?;
                guests[which].kill_host()?;
            }
        }
        say(&format!("killed: {fault:?}"));
        interrupt.pause(Duration::from_secs(3))?;
        for guest in &mut guests {
            guest.begin_again()?;
        }
        progress(&mut guests, interrupt)?;
        say("both guests go on");
    }
    interrupt.pause(pause)?;
    machine.stop()?;
    for guest in &mut guests {
        guest.ended(Task::Work, TASK_WAIT)?;
    }
    say("both guests have unmounted");
    guests[0].boot(Task::Check)?;
    guests[0].ended(Task::Check, TASK_WAIT)?;
    say(&format!("fsck.ocfs2 finds nothing; {}", machine.verdict()));
    Ok(())
}

/// Waits until both guests have done more.
fn progress(guests: &mut [Guest; 2], interrupt: &Interrupt) -> Result<()> {
    let before = [guests[0].done()?, guests[1].done()?];
    interrupt.until(PROGRESS_WAIT, "a guest has done nothing", || {
        let mut go_on = true;
        for (guest, before) in guests.iter_mut().zip(before) {
            guest.check()?;
            go_on &= guest.done()? >= before + PROGRESS;
        }
        Ok(go_on.then_some(()))
    })
}
