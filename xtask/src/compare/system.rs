//! Resource usage of a process, as reported by the kernel.

use crate::prelude::*;

pub fn memory_peak_bytes(pid: u32) -> Result<u64> {
    let text = read(pid, "status")?;
    let kib = field(&text, "VmHWM:").context("the kernel does not say VmHWM")?;
    Ok(kib << 10)
}

/// Bytes that a process has written to disks.
pub fn written_bytes(pid: u32) -> Result<u64> {
    field(&read(pid, "io")?, "write_bytes:").context("the kernel does not say write_bytes")
}

/// The CPU time of a process, in user and kernel mode.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let ticks = ticks(&read(pid, "stat")?).context("the kernel says no CPU time")?;
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

fn read(pid: u32, file: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(&path).with_context(|| format!("can't read {path}: the process may have ended"))
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 of `stat`, which follow the name in parentheses; the name may contain spaces and parentheses itself.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status = "VmPeak:\t  999 kB\nVmHWM:\t   42180 kB\nVmRSS:\t  100 kB\n";
        assert_eq!(field(status, "VmHWM:"), Some(42180));
        assert_eq!(field("cancelled_write_bytes: 7\nwrite_bytes: 4096\n", "write_bytes:"), Some(4096));
        assert_eq!(field(status, "VmSwap:"), None);
    }

    #[test]
    fn cpu_time_is_user_and_kernel_also_of_processes_with_odd_names() {
        let stat = "12 (a) b (c)) S 1 12 12 0 -1 4194304 100 0 0 0 250 31 7 9 20 0 1 0 5";
        assert_eq!(ticks(stat), Some(281));
    }
}
