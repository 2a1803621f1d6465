//! Third-party packages comply with `deny.toml`: licences, names, sources.

use braid_structure::packages::{Dependency, Named, Package, packages, rules, violations};

#[test]
fn packages_keep_to_the_rules() {
    let wrong = violations(&rules(), &packages());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn packages_that_break_a_rule_are_found() {
    let (rules, used) = (rules(), packages());
    let others = used.iter().find(|package| package.source.is_some()).expect("packages of others are used");
    let found = |package: Package, expected: &str| {
        let all = [used.as_slice(), &[package]].concat();
        let wrong = violations(&rules, &all);
        assert!(wrong.iter().any(|line| line.contains(expected)), "`{expected}` is not in {wrong:?}");
    };
    let like = |name: &str| Package { name: name.to_string(), ..others.clone() };
    found(Package { license: Some("GPL-3.0-only".to_string()), ..like("copied") }, "`GPL-3.0-only` is not allowed");
    found(Package { license: Some("MIT AND X11".to_string()), ..like("mixed") }, "`MIT AND X11` is not allowed");
    found(Package { license: None, ..like("nameless") }, "nameless");
    found(like("openssl-sys"), "openssl-sys");
    found(Package { version: "999.0.0".to_string(), ..others.clone() }, "in several versions");
    let elsewhere = Some("registry+https://example.org/index".to_string());
    found(Package { source: elsewhere, ..like("elsewhere") }, "is from registry+https://example.org/index");
    let git = Some("git+https://example.org/a.git#0123".to_string());
    found(Package { source: git, ..like("cloned") }, "is from git+https://example.org/a.git");
    let own = used.iter().find(|package| package.source.is_none()).expect("the workspace has packages");
    let any = Dependency { name: "bytes".to_string(), req: "*".to_string(), source: others.source.clone() };
    found(Package { dependencies: vec![any], ..own.clone() }, "any version of bytes");

    let mut stale = rules.clone();
    stale.licenses.allow.push("Zlib".to_string());
    stale.bans.skip.push(Named { name: "nowhere@1".to_string(), reason: String::new() });
    let wrong = violations(&stale, &used);
    assert_eq!(wrong.len(), 2, "rules without effect are reported: {wrong:?}");
}
