//! Tests of reading scenarios.

use super::*;

#[test]
fn every_scenario_of_the_repository_reads_and_says_what_it_is_for() {
    let names = names().unwrap();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        let scenario = find(&name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(scenario.name, name);
        assert!(!scenario.about.is_empty(), "{name}");
        assert!(!scenario.tests.seeds.is_empty(), "{name}");
    }
    let nightly = std::fs::read_dir(folder().join("nightly")).unwrap();
    for entry in nightly {
        find(&entry.unwrap().path().to_string_lossy()).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn a_wrong_key_names_itself_and_the_nearest() {
    let message = |text: &str| Scenario::parse("s", text).unwrap_err().to_string();
    let wrong = message("[workload]\nreadrs = 1\n");
    assert!(wrong.contains("unknown field `readrs`") && wrong.ends_with("did you mean `readers`?"), "{wrong}");
    let wrong = message("abuot = \"x\"\n");
    assert!(wrong.ends_with("did you mean `about`?"), "{wrong}");
    let wrong = message("[[faults]]\nevery_ms = 1\ncrash = { powr = 1.0 }\n");
    assert!(wrong.ends_with("did you mean `power`?"), "{wrong}");
    let wrong = message("[[faults]]\nevery_ms = 1\ncrsh = {}\n");
    assert!(wrong.contains("crsh"), "{wrong}");
    let wrong = message("[workload]\nplain = [3, 1]\n");
    assert!(wrong.contains("plain"), "{wrong}");
}

#[test]
fn a_wrong_name_suggests_the_nearest() {
    let error = find("power_los").unwrap_err().to_string();
    assert_eq!(error, "there is no scenario `power_los`; did you mean `power_loss`?");
}

#[test]
fn ranges_and_rules_read_as_written() {
    let text = "[workload]\nplain = 2\nreaders = [1, 4]\n[[faults]]\nchance = 0.5\nevery_ms = [1, 2]\ncrash = { power = 0.25 }\n";
    let scenario = Scenario::parse("s", text).unwrap();
    assert_eq!(scenario.workload.plain, Range(2, 2));
    assert_eq!(scenario.workload.readers, Range(1, 4));
    let rule = &scenario.faults[0];
    assert_eq!((rule.chance, rule.every_ms), (0.5, Range(1, 2)));
    assert!(matches!(&rule.kind, Kind::Crash(crash) if crash.power == 0.25 && crash.down_ms == Range(1, 300)));
}

#[test]
fn a_wrong_check_is_named_with_the_nearest() {
    let error = Scenario::parse("s", "[checks]\nwithout = [\"lost writes\"]\n").unwrap_err().to_string();
    assert!(error.ends_with("names `lost writes`, which is no check; did you mean `lost write`?"), "{error}");
    assert!(Scenario::parse("s", "[checks]\nwithout = [\"lost write\"]\n").is_ok());
}

#[test]
fn values_that_cannot_be_are_refused() {
    let message = |text: &str| Scenario::parse("s", text).unwrap_err().to_string();
    let rule = |rule: &str| message(&format!("[[faults]]\nevery_ms = 1\n{rule}\n"));
    for wrong in [
        rule("chance = 1.5\ncrash = {}"),
        rule("crash = { power = -0.1 }"),
        rule("crash = { clock = nan }"),
        message("[workload]\nacks_all = 2.0\n"),
    ] {
        assert!(wrong.contains("a number from 0 to 1"), "{wrong}");
    }
    let wrong = rule("crash = { keep = [] }");
    assert!(wrong.contains("the list is empty"), "{wrong}");
    let wrong = rule("disk_trouble = {}");
    assert!(wrong.contains("does nothing"), "{wrong}");
    let wrong = message("probes = [\"wal.torn_tial\"]\n");
    assert!(wrong.ends_with("names `wal.torn_tial`, which is no probe; did you mean `wal.torn_tail`?"), "{wrong}");
}
