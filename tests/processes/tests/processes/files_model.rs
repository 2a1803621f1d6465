//! A file system in memory, which the library is compared with.

use std::collections::{BTreeMap, VecDeque};

const ROOT: u64 = 1;
/// As many symbolic links as a path may lead through.
const LINKS_MAX: usize = 40;

/// What a path names: the directory, the name in it, and the inode, as far as they exist.
struct Spot {
    parent: u64,
    name: Option<String>,
    node: Option<u64>,
}

#[derive(Clone, Debug)]
enum Node {
    File(Vec<u8>),
    Directory { parent: u64, entries: BTreeMap<String, u64> },
    Link(String),
}

/// What both say of an inode: its kind, its length, and how many names it has.
pub type Facts = (char, u64, u32);

/// `None`: it must fail.
pub type Outcome<T> = Option<T>;

pub struct Model {
    nodes: BTreeMap<u64, Node>,
    next: u64,
}

impl Model {
    pub fn new() -> Model {
        let root = Node::Directory { parent: ROOT, entries: BTreeMap::new() };
        Model { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1 }
    }

    pub fn create_file(&mut self, path: &str) -> Outcome<()> {
        self.insert(path, |_| Node::File(Vec::new()))
    }

    pub fn create_dir(&mut self, path: &str) -> Outcome<()> {
        self.insert(path, |parent| Node::Directory { parent, entries: BTreeMap::new() })
    }

    pub fn symlink(&mut self, target: &str, path: &str) -> Outcome<()> {
        self.insert(path, |_| Node::Link(target.to_string()))
    }

    pub fn read_link(&self, path: &str) -> Outcome<String> {
        let Node::Link(target) = &self.nodes[&self.walk(path, false)?.node?] else { return None };
        Some(target.clone())
    }

    pub fn hard_link(&mut self, original: &str, path: &str) -> Outcome<()> {
        let node = self.walk(original, false)?.node?;
        let Spot { parent, name, node: None } = self.walk(path, false)? else { return None };
        if matches!(self.nodes[&node], Node::Directory { .. }) {
            return None;
        }
        self.entries(parent).insert(name?, node);
        Some(())
    }

    /// Opens a file that is created if necessary, and changes its bytes.
    pub fn change(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> Outcome<()> {
        let Spot { parent, name, node } = self.walk(path, true)?;
        let node = match node {
            Some(node) => node,
            None => {
                let node = self.add(Node::File(Vec::new()));
                self.entries(parent).insert(name?, node);
                node
            }
        };
        match self.nodes.get_mut(&node).expect("it exists") {
            Node::File(bytes) => change(bytes),
            _ => return None,
        }
        Some(())
    }

    pub fn read(&self, path: &str) -> Outcome<Vec<u8>> {
        let Node::File(bytes) = &self.nodes[&self.walk(path, true)?.node?] else { return None };
        Some(bytes.clone())
    }

    pub fn remove_file(&mut self, path: &str) -> Outcome<()> {
        let Spot { parent, name: Some(name), node: Some(node) } = self.walk(path, false)? else { return None };
        if matches!(self.nodes[&node], Node::Directory { .. }) {
            return None;
        }
        self.entries(parent).remove(&name);
        Some(())
    }

    /// Removes a directory, with everything in it if `all` is set.
    pub fn remove_dir(&mut self, path: &str, all: bool) -> Outcome<()> {
        let Spot { parent, name: Some(name), node: Some(node) } = self.walk(path, false)? else { return None };
        match &self.nodes[&node] {
            Node::Directory { entries, .. } if all || entries.is_empty() => {}
            _ => return None,
        }
        self.entries(parent).remove(&name);
        Some(())
    }

    pub fn rename(&mut self, from: &str, to: &str) -> Outcome<()> {
        let Spot { parent, name: Some(name), node: Some(moved) } = self.walk(from, false)? else { return None };
        let Spot { parent: new_parent, name: Some(new_name), node: replaced } = self.walk(to, false)? else {
            return None;
        };
        if replaced == Some(moved) {
            return Some(());
        }
        let is_directory = matches!(self.nodes[&moved], Node::Directory { .. });
        let mut above = new_parent;
        while is_directory && above != ROOT {
            if above == moved {
                return None;
            }
            above = self.parent(above);
        }
        match replaced.map(|replaced| &self.nodes[&replaced]) {
            None => {}
            Some(Node::Directory { entries, .. }) if is_directory && entries.is_empty() => {}
            Some(Node::File(_) | Node::Link(_)) if !is_directory => {}
            Some(_) => return None,
        }
        self.entries(parent).remove(&name);
        self.entries(new_parent).insert(new_name, moved);
        if let Some(Node::Directory { parent, .. }) = self.nodes.get_mut(&moved) {
            *parent = new_parent;
        }
        Some(())
    }

    pub fn facts(&self, path: &str, follows: bool) -> Outcome<Facts> {
        let node = self.walk(path, follows)?.node?;
        Some(match &self.nodes[&node] {
            Node::File(bytes) => ('f', bytes.len() as u64, self.names(node)),
            Node::Link(target) => ('l', target.len() as u64, self.names(node)),
            Node::Directory { entries, .. } => {
                let inner = entries.values().filter(|node| matches!(self.nodes[node], Node::Directory { .. }));
                ('d', entries.len() as u64, 2 + inner.count() as u32)
            }
        })
    }

    pub fn list(&self, path: &str) -> Outcome<Vec<String>> {
        let Node::Directory { entries, .. } = &self.nodes[&self.walk(path, true)?.node?] else { return None };
        Some(entries.keys().cloned().collect())
    }

    fn insert(&mut self, path: &str, node: impl FnOnce(u64) -> Node) -> Outcome<()> {
        let Spot { parent, name, node: None } = self.walk(path, false)? else { return None };
        let node = self.add(node(parent));
        self.entries(parent).insert(name?, node);
        Some(())
    }

    fn add(&mut self, node: Node) -> u64 {
        self.next += 1;
        self.nodes.insert(self.next, node);
        self.next
    }

    fn names(&self, node: u64) -> u32 {
        // Directories that were removed keep their entries here, but nothing leads to them.
        let mut reached = vec![ROOT];
        let mut names = 0;
        while let Some(directory) = reached.pop() {
            let Node::Directory { entries, .. } = &self.nodes[&directory] else { continue };
            names += entries.values().filter(|entry| **entry == node).count() as u32;
            reached.extend(entries.values());
        }
        names
    }

    fn entries(&mut self, directory: u64) -> &mut BTreeMap<String, u64> {
        match self.nodes.get_mut(&directory) {
            Some(Node::Directory { entries, .. }) => entries,
            other => panic!("not a directory: {other:?}"),
        }
    }

    fn parent(&self, directory: u64) -> u64 {
        match &self.nodes[&directory] {
            Node::Directory { parent, .. } => *parent,
            other => panic!("not a directory: {other:?}"),
        }
    }

    fn walk(&self, path: &str, follows: bool) -> Outcome<Spot> {
        let components =
            |path: &str| path.split('/').filter(|one| !one.is_empty()).map(String::from).collect::<Vec<_>>();
        let (mut rest, mut at, mut links) = (VecDeque::from(components(path)), ROOT, 0);
        while let Some(name) = rest.pop_front() {
            let Node::Directory { parent, entries } = &self.nodes[&at] else { return None };
            if name == ".." {
                at = *parent;
                continue;
            }
            let is_last = rest.is_empty();
            let Some(node) = entries.get(&name) else {
                return is_last.then_some(Spot { parent: at, name: Some(name), node: None });
            };
            match &self.nodes[node] {
                Node::Link(target) if follows || !is_last => {
                    links += 1;
                    if links > LINKS_MAX {
                        return None;
                    }
                    at = if target.starts_with('/') { ROOT } else { at };
                    components(target).into_iter().rev().for_each(|one| rest.push_front(one));
                }
                _ if is_last => return Some(Spot { parent: at, name: Some(name), node: Some(*node) }),
                _ => at = *node,
            }
        }
        Some(Spot { parent: at, name: None, node: Some(at) })
    }
}
