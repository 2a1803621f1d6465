//! Text about the cost of one operation, computed from counters.

use braid_session::Metrics;

/// Text about a device's counters, in lines.
pub fn of_device(counts: &Metrics) -> Vec<String> {
    let requests = counts.total(&["reads", "writes"]);
    let mut lines = Vec::new();
    let each = [
        ("messages", &["messages_received", "messages_sent"][..]),
        ("disk reads", &["disk_reads"]),
        ("disk writes", &["disk_writes"]),
        ("syncs", &["disk_durable_writes", "disk_syncs"]),
        ("waits", &["waits"]),
        ("refusals", &["refused_too_late", "refused_other"]),
    ];
    lines.extend(sentence("each read or write served took", counts, requests, &each));
    if let Some(amplification) = counts.per(&["disk_write_bytes"], counts.get("bytes_accepted")) {
        lines.push(format!("each byte accepted took {amplification:.2} bytes written to the disk"));
    }
    lines
}

/// Text about a host's counters, in lines.
pub fn of_host(counts: &Metrics) -> Vec<String> {
    let each = [
        ("messages", &["requests_sent", "answers"][..]),
        ("retries", &["retries"]),
        ("socket reads", &["socket_reads"]),
        ("socket writes", &["socket_writes"]),
        ("µs of CPU", &["cpu_micros"]),
    ];
    let mut lines: Vec<String> =
        sentence("each operation took", counts, counts.get("operations"), &each).into_iter().collect();
    if let (Some(met), Some(repaired)) = (counts.get("damaged"), counts.get("corruption_repaired"))
        && met + repaired > 0
    {
        lines.push(format!(
            "{met} attempts found blocks with checksum errors, and reconstructed them; {repaired} blocks were repaired"
        ));
    }
    lines
}

/// Text about a lock server's counters, in lines.
pub fn of_lock_server(counts: &Metrics) -> Vec<String> {
    let each = [
        ("messages", &["messages_received", "messages_sent"][..]),
        ("waits", &["waits"]),
        ("revocations", &["revocations"]),
        ("time-outs", &["timeouts"]),
        ("µs of CPU", &["cpu_micros"]),
    ];
    sentence("each lock request took", counts, counts.get("locks"), &each).into_iter().collect()
}

fn sentence(begin: &str, counts: &Metrics, whole: Option<u64>, each: &[(&str, &[&str])]) -> Option<String> {
    let known = each.iter().filter_map(|(what, names)| Some(format!("{:.2} {what}", counts.per(names, whole)?)));
    let known: Vec<String> = known.collect();
    (!known.is_empty()).then(|| format!("{begin} {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_put_into_words() {
        let requests = [("reads", 6), ("writes", 4), ("messages_received", 12), ("messages_sent", 10)];
        let disk = [("disk_reads", 5), ("disk_write_bytes", 300), ("bytes_accepted", 200)];
        let lines = of_device(&Metrics::from_iter([&requests[..], &disk].concat()));
        assert_eq!(lines[0], "each read or write served took 2.20 messages, 0.50 disk reads");
        assert_eq!(lines[1..], ["each byte accepted took 1.50 bytes written to the disk"]);
        let none = of_device(&Metrics::from_iter([("reads", 0), ("writes", 0), ("disk_reads", 4)]));
        assert_eq!(none, [""; 0], "without counters, no text");
        let retried = of_host(&Metrics::from_iter([("operations", 4), ("retries", 1)]));
        assert_eq!(retried, ["each operation took 0.25 retries"]);
        let corrupt = of_host(&Metrics::from_iter([("damaged", 3), ("corruption_repaired", 1)]));
        let expected = "3 attempts found blocks with checksum errors, and reconstructed them; 1 blocks were repaired";
        assert_eq!(corrupt, [expected]);
    }
}
