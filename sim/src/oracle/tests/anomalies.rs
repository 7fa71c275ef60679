//! Hand-made histories: each anomaly under its name, and clean ones that look suspicious.

use super::*;

#[test]
fn clean_histories_are_accepted() {
    check(&[], |_| {});
    check(&[], |make| {
        make.acked(0);
        let second = make.send(3);
        make.ack(second, 1);
        make.read(0, 4, &[1, 2, 3, 4]);
        make.crash();
        make.read(2, 4, &[3, 4]);
        make.last(&[1, 2, 3, 4]);
    });
}

#[test]
fn an_unknown_outcome_may_be_in_the_log_or_not() {
    check(&[], |make| {
        make.send(1);
        make.acked(0);
        make.last(&[2]);
    });
    check(&[], |make| {
        make.send(1);
        make.acked(1);
        make.last(&[1, 2]);
    });
}

#[test]
fn sends_that_overlap_may_land_in_any_order() {
    check(&[], |make| {
        let first = make.send_to(0, P, 1);
        let second = make.send_to(1, P, 1);
        make.ack(second, 0);
        make.ack(first, 1);
        make.last(&[2, 1]);
    });
}

#[test]
fn two_values_at_one_offset() {
    check(&["two values at one offset"], |make| {
        let first = make.send_to(0, P, 1);
        let second = make.send_to(1, P, 1);
        make.ack(first, 0);
        make.ack(second, 0);
    });
}

#[test]
fn an_acknowledged_offset_that_changes_after_a_crash_is_two_values_and_unseen() {
    check(&["two values at one offset", "unseen"], |make| {
        let first = make.send_to(0, P, 1);
        make.send_to(1, P, 1);
        make.ack(first, 0);
        make.crash();
        make.last(&[2]);
    });
}

#[test]
fn served_then_changed() {
    check(&["served then changed", "two values at one offset"], |make| {
        let first = make.send_to(0, P, 1);
        make.send_to(1, P, 1);
        make.ack(first, 0);
        make.read(0, 1, &[1]);
        make.crash();
        make.read(0, 1, &[2]);
    });
}

#[test]
fn corrupt_read() {
    check(&["corrupt read"], |make| {
        make.acked(0);
        make.read_at(0, 1, &[Seen { offset: 0, value: 1, digest: 7 }]);
    });
    check(&["corrupt read"], |make| make.read_at(0, 1, &[Seen { offset: 0, value: 0, digest: 7 }]));
    check(&["corrupt read"], |make| make.read_at(0, 1, &[Seen { offset: 0, value: 99, digest: 7 }]));
    check(&["corrupt read"], |make| {
        make.send_to(0, OTHER, 1);
        make.read(0, 1, &[1]);
    });
    check(&["corrupt read"], |make| {
        let read = make.response(P, 0, 1, Response::Garbled);
        make.history.end_read(read, &[]);
    });
}

#[test]
fn duplicate() {
    check(&["duplicate"], |make| {
        make.acked(0);
        make.read(0, 2, &[1, 1]);
    });
}

#[test]
fn failed_send_read() {
    check(&["failed send read"], |make| {
        let send = make.send(1);
        make.fail(send);
        make.read(0, 1, &[1]);
    });
}

#[test]
fn lost_write() {
    // A later reader jumps over what was acknowledged; the jump itself is a poll-skip.
    check(&["lost write", "poll-skip"], |make| {
        make.acked(0);
        make.acked(1);
        let seen = dense(1, &[2]);
        make.read_at(0, 2, &seen);
    });
    check(&["lost write"], |make| {
        make.acked(0);
        make.acked(1);
        let read = make.response(P, 1, -1, Response::OutOfRange);
        make.history.end_read(read, &[]);
    });
}

#[test]
fn out_of_range_past_the_end_is_fine() {
    check(&[], |make| {
        make.acked(0);
        let read = make.response(P, 1, -1, Response::OutOfRange);
        make.history.end_read(read, &[]);
    });
}

#[test]
fn unseen() {
    check(&["unseen"], |make| {
        let send = make.send(1);
        make.history.end_send(send, Outcome::AckedSomewhere, 0);
        make.last(&[]);
    });
    // Without a complete last read nothing is said.
    check(&[], |make| {
        make.acked(0);
    });
}

#[test]
fn uncommitted_read() {
    check(&["uncommitted read"], |make| {
        make.send(1);
        make.read(0, 0, &[1]);
    });
    // Shown, never acknowledged, gone after the crash.
    check(&["high watermark monotone", "uncommitted read"], |make| {
        make.send(1);
        make.read(0, 1, &[1]);
        make.crash();
        make.last(&[]);
    });
}

#[test]
fn nonmonotonic_send() {
    check(&["nonmonotonic send"], |make| {
        let first = make.send(1);
        let second = make.send(1);
        make.ack(first, 1);
        make.ack(second, 0);
    });
    // Another partition has its own order.
    check(&[], |make| {
        make.acked(0);
        let other = make.send_to(0, OTHER, 1);
        make.ack(other, 0);
    });
}

#[test]
fn real_time_order() {
    check(&["real-time order"], |make| {
        let first = make.send_to(0, P, 1);
        make.ack(first, 1);
        let second = make.send_to(1, P, 1);
        make.ack(second, 0);
    });
}

#[test]
fn high_watermark_monotone() {
    check(&["high watermark monotone"], |make| {
        make.read(0, 0, &[]);
        make.send(2);
        make.read(0, 2, &[1, 2]);
        make.read(0, 1, &[1]);
    });
    check(&["high watermark monotone"], |make| {
        make.acked(0);
        make.read(0, 0, &[]);
    });
    // An answer that was on its way meanwhile may be older.
    check(&[], |make| {
        let old = make.response(P, 0, 0, Response::Offsets);
        make.acked(0);
        make.history.end_read(old, &[]);
    });
}

#[test]
fn poll_skip_and_nonmonotonic_poll() {
    let poll = |make: &mut Make, from: i64, seen: &[Seen]| {
        let read = make.response(P, from, 3, Response::Records { seen: 0..0 });
        make.history.end_read(read, seen);
    };
    check(&["poll-skip"], |make| {
        make.send(3);
        poll(make, 0, &dense(0, &[1]));
        poll(make, 2, &dense(2, &[3]));
    });
    check(&["nonmonotonic poll"], |make| {
        make.send(3);
        poll(make, 0, &dense(0, &[1, 2]));
        poll(make, 1, &dense(1, &[2, 3]));
    });
}

#[test]
fn log_start() {
    let told = |make: &mut Make, log_start: i64, high_watermark: i64| {
        let mut read = make.response(P, 0, high_watermark, Response::Offsets);
        read.log_start = log_start;
        make.history.end_read(read, &[]);
    };
    let grant = |make: &mut Make, offset: i64| {
        let at = make.history.stamp(0);
        make.history.log_start_grants.push(crate::history::LogStartGrant { partition: P, offset, at });
    };
    check(&["log start"], |make| told(make, 1, 5));
    check(&[], |make| {
        grant(make, 3);
        told(make, 3, 5);
    });
    check(&["log start"], |make| {
        grant(make, 3);
        told(make, 3, 5);
        told(make, 0, 5);
    });
    check(&["log start"], |make| {
        grant(make, 9);
        told(make, 9, 5);
    });
    // What a permission removed is not lost.
    check(&[], |make| {
        make.acked(0);
        make.acked(1);
        grant(make, 1);
        make.read_at(0, 2, &dense(1, &[2]));
    });
}

#[test]
fn a_report_names_the_operations_that_prove_it() {
    let mut make = Make::new();
    make.acked(0);
    make.read(0, 2, &[1, 1]);
    let report = judge(&make.history, &[]).violations[0].report(&make.history);
    assert!(report.starts_with("duplicate in t-0: value 1 stands at offset 0 and at offset 1"), "{report}");
    assert!(report.contains("send #0") && report.contains("read #0"), "{report}");
}

#[test]
fn a_property_that_is_named_is_not_judged() {
    let mut make = Make::new();
    make.acked(0);
    make.read(0, 2, &[1, 1]);
    // Offset 1 belongs to the second send.
    make.acked(1);
    let found = |without: &[&str]| {
        let without: Vec<String> = without.iter().map(|&name| name.to_owned()).collect();
        judge(&make.history, &without).violations.into_iter().map(|found| found.check).collect::<Vec<_>>()
    };
    let all = found(&[]);
    assert!(all.contains(&"duplicate") && all.len() > 1, "{all:?}");
    let rest: Vec<&str> = all.into_iter().filter(|name| *name != "duplicate").collect();
    assert_eq!(found(&["duplicate"]), rest);
}

#[test]
fn offset_by_time() {
    // Offsets 0, 1, 2 with times 10, 30, 20.
    let log = |make: &mut Make| {
        for (offset, timestamp) in [(0, 10), (1, 30), (2, 20)] {
            make.timestamp = timestamp;
            make.acked(offset);
        }
    };
    let asked = |timestamp: Option<i64>, offset: i64, found: i64| {
        move |make: &mut Make| {
            log(make);
            make.ask(timestamp, offset, found);
        }
    };
    check(&[], asked(Some(10), 0, 10));
    check(&[], asked(Some(11), 1, 30));
    check(&[], asked(Some(31), -1, -1));
    check(&[], asked(None, 1, 30));
    // KAFKA-16310: the end of the batch instead of the record.
    check(&["offset by time"], asked(Some(11), 2, 20));
    check(&["offset by time"], asked(Some(11), 2, 30));
    check(&["offset by time"], asked(Some(31), 1, 30));
    check(&["offset by time"], asked(Some(11), -1, -1));
    check(&["offset by time"], asked(None, 2, 20));
    // What was stored since is not held against an answer.
    check(&[], |make| {
        log(make);
        make.ask(Some(31), -1, -1);
        make.ask(None, 1, 30);
        make.timestamp = 40;
        make.acked(3);
    });
}

#[test]
fn what_a_lying_disk_lost_is_beyond_the_promise_and_nothing_else() {
    let lost = |make: &mut Make| {
        let first = make.send_to(0, P, 1);
        make.send_to(1, P, 1);
        make.ack(first, 0);
        make.crash();
    };
    check(&[], |make| {
        lost(make);
        make.history.exceed(0, Beyond::LossAfterLie);
        make.last(&[2]);
    });
    // Shown before the loss.
    check(&["two values at one offset", "unseen"], |make| {
        lost(make);
        make.last(&[2]);
        make.history.exceed(0, Beyond::LossAfterLie);
    });
    check(&["corrupt read"], |make| {
        make.acked(0);
        make.history.exceed(0, Beyond::LossAfterLie);
        make.read(0, 1, &[0]);
    });
    check(&[], |make| {
        make.acked(0);
        make.history.exceed(0, Beyond::FlippedBit);
        let garbled = make.response(P, 0, 1, Response::Garbled);
        make.history.end_read(garbled, &[]);
    });
    check(&["failed send read"], |make| {
        let send = make.send(1);
        make.fail(send);
        make.history.exceed(0, Beyond::FlippedBit);
        make.last(&[1]);
    });
}
