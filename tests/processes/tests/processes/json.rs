//! The page docs/json.md lists the keys of the commands' JSON output, and no others.

use crate::prelude::*;
use braid_processes::console::root;

/// Objects that have names of their own, which the page does not list one by one.
const OPEN: [&str; 3] = ["counters", "figures", "moving"];

/// The keys of each command: the page's tables after a mark with the command's words.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = std::fs::read_to_string(root().join("docs/json.md")).expect("the page can be read");
    let mut commands: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut command = None;
    for line in page.lines() {
        if let Some(words) = line.strip_prefix("<!-- json: ").and_then(|rest| rest.strip_suffix(" -->")) {
            command = Some(words.to_string());
        } else if line.starts_with("## ") {
            command = None;
        } else if let (Some(command), Some(row)) = (&command, line.strip_prefix("| `")) {
            let cell = row.split(" | ").next().unwrap_or_default();
            // A key that only some situations print is marked.
            let mark = if row.contains("absent in other") || row.contains("otherwise absent") { OPTIONAL } else { "" };
            let keys = cell.split(", ").map(|key| format!("{}{mark}", key.trim_matches('`')));
            commands.entry(command.clone()).or_default().extend(keys);
        }
    }
    commands
}

/// The mark of a key that may be absent.
const OPTIONAL: &str = "?";

/// The keys of some outputs of a command.
#[derive(Default)]
struct Shown {
    /// All keys.
    keys: BTreeSet<String>,
    /// Those that had no value, or an empty list, at least once.
    empty: BTreeSet<String>,
}

impl Shown {
    fn add(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(entries) if !OPEN.contains(&path.rsplit('.').next().unwrap_or_default()) => {
                for (key, value) in entries {
                    let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    self.add(&inner, value);
                }
            }
            Value::Array(list) if list.first().is_some_and(Value::is_object) => {
                list.iter().for_each(|entry| self.add(&format!("{path}[]"), entry));
            }
            Value::Null => drop(self.empty.insert(path.to_string())),
            Value::Array(list) if list.is_empty() => drop(self.empty.insert(path.to_string())),
            _ => drop(self.keys.insert(path.to_string())),
        }
    }

    /// What is wrong with the page's keys.
    fn differences(&self, documented: &BTreeSet<String>) -> Vec<String> {
        let below = |key: &str, outer: &str| {
            key.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let is_known = |key: &&String| documented.contains(*key) || documented.contains(&format!("{key}{OPTIONAL}"));
        let unknown = self.keys.iter().filter(|key| !is_known(key)).map(|key| format!("'{key}' is not on the page"));
        let unnamed = self.empty.iter().filter(|outer| !documented.iter().any(|key| below(key, outer)));
        let unnamed = unnamed.map(|key| format!("'{key}' is not on the page"));
        let hidden = |key: &String| self.keys.contains(key) || self.empty.iter().any(|outer| below(key, outer));
        let gone = documented
            .iter()
            .filter(|key| !key.ends_with(OPTIONAL) && !hidden(key))
            .map(|key| format!("'{key}' is not printed"));
        unknown.chain(unnamed).chain(gone).collect()
    }
}

#[test]
fn the_page_lists_the_keys_of_json_output() {
    let array = Array::up(&[&SMALL[..], &["--fs", "home"]].concat());
    Client::open(&array.nbd()).write(0, &noise(seed(), 4 << 20)).expect("a write works");
    array.braid(&["device", "add", "--spare"]).done();
    array.braid(&["volume", "create", "locked", "--size", "1MiB", "--ordering", "server-lock"]).done();
    array.await_status("its lock server serves", |status| status["lock_servers"][0]["state"] == "serving");
    let mut shown: BTreeMap<String, Shown> = BTreeMap::new();
    let mut record = |command: &str, output: &Value| shown.entry(command.to_string()).or_default().add("", output);

    // A device is rebuilt, slowly enough to be observed.
    array.braid(&["rebuild", "--rate", "1MiB/s", "--share", "100%"]).done();
    array.braid(&["device", "replace", "3"]).done();
    let status = array.await_status("it is rebuilt", |status| !status["devices"][3]["healing"]["percent"].is_null());
    record("status", &status);
    record("rebuild status", &array.braid(&["rebuild", "status"]).done().json());
    let checked = array.braid(&["volume", "check", "vol0"]).done().json();
    assert!(checked["unchecked"].as_u64() > Some(0), "{checked}");
    record("volume check vol0", &checked);
    let dir = path_text(array.dir()).to_string();
    let followed = std::thread::scope(|scope| {
        let following = scope.spawn(|| braid(&["rebuild", "3", "--array", &dir, "--json"]).done().json());
        std::thread::sleep(Duration::from_secs(1));
        array.braid(&["rebuild", "--rate", "none"]).done();
        following.join().expect("it does not panic")
    });
    assert_eq!(followed["devices"][0]["id"], 3, "{followed}");
    record("rebuild", &followed);
    // An event that concerns a volume.
    array.braid(&["scrub", "vol0"]).done();

    let documented = documented();
    assert!(documented.len() >= 9, "{documented:?}");
    for command in documented.keys() {
        if !["rebuild", "rebuild status"].contains(&command.as_str()) {
            let arguments: Vec<&str> = command.split(' ').collect();
            record(command, &array.braid(&arguments).done().json());
        }
    }
    let none = Shown::default();
    let differences = documented.iter().flat_map(|(command, keys)| {
        let found = shown.get(command).unwrap_or(&none).differences(keys);
        found.into_iter().map(move |difference| format!("{command}: {difference}"))
    });
    let differences: Vec<String> = differences.collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));

    let throttle = array.braid(&["rebuild", "--share", "usual"]).done().json()["throttle"].clone();
    assert_eq!(throttle["share"], 25, "{throttle}");
}
