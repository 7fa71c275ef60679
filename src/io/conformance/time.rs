//! Clocks, tasks, computations and seeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::world::{World, soon};
use crate::{Env, Monotonic};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Never back, and at least as far as was slept.
pub async fn the_clock_is_monotonic(World { env, .. }: World) {
    let mut last = env.now();
    for _ in 0..1000 {
        let now = env.now();
        assert!(now >= last);
        last = now;
    }
    for millis in [0, 1, 5, 20] {
        let before = env.now();
        env.sleep(ms(millis)).await;
        assert!(env.now() - before >= ms(millis));
    }
}

/// By deadline, not by creation.
pub async fn sleeps_end_in_order(World { env, .. }: World) {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let start = env.now();
    for millis in [90, 30, 60, 120] {
        let sleep = env.sleep_until(start + ms(millis));
        let sender = sender.clone();
        env.spawn("sleeper", async move {
            sleep.await;
            let _ = sender.send(millis);
        });
    }
    for expected in [30, 60, 90, 120] {
        assert_eq!(soon(&env, receiver.recv()).await, Some(expected));
        assert!(env.now() >= start + ms(expected));
    }
    soon(&env, env.sleep_until(start)).await;
    soon(&env, env.sleep_until(Monotonic::default())).await;
}

/// A loop that looks at a long sleep many times, and sleeps that nobody waits for.
pub async fn dropped_and_repolled_sleeps_do_no_harm(World { env, .. }: World) {
    let mut long = env.sleep(Duration::from_secs(3600));
    for _ in 0..200 {
        tokio::select! {
            biased;
            () = &mut long => panic!("an hour is not over"),
            () = env.sleep(Duration::from_micros(50)) => {}
        }
        drop(env.sleep(Duration::from_secs(60)));
    }
    let never = env.sleep(Duration::MAX);
    tokio::select! {
        biased;
        () = never => panic!("it is not over"),
        () = env.sleep(ms(5)) => {}
    }
}

/// After 2020, and roughly as fast as the other.
pub async fn the_wall_clock_goes_on(World { env, .. }: World) {
    let before = env.wall().0;
    assert!(before > 1_577_836_800_000);
    env.sleep(ms(60)).await;
    let passed = env.wall().0 - before;
    assert!((40..10_000).contains(&passed), "{passed} ms");
}

/// Joining waits for the end, for all who join, and again afterwards; dropping the handle ends nothing.
pub async fn tasks_are_joined(World { env, .. }: World) {
    let count = Arc::new(AtomicU32::new(0));
    let counts = |env: &Env, count: &Arc<AtomicU32>| {
        let (env, count) = (env.clone(), count.clone());
        async move {
            env.sleep(ms(10)).await;
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let task = env.spawn("counter", counts(&env, &count));
    let other = task.clone();
    soon(&env, async { tokio::join!(task.join(), other.join()) }).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    soon(&env, task.join()).await;
    drop(env.spawn("counter", counts(&env, &count)));
    soon(&env, async {
        while count.load(Ordering::SeqCst) < 2 {
            env.sleep(ms(1)).await;
        }
    })
    .await;
}

struct CountsDrop(Arc<AtomicU32>);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Cancelling drops what the task owns before joining returns, started or not.
pub async fn cancelled_tasks_are_dropped(World { env, .. }: World) {
    let drops = Arc::new(AtomicU32::new(0));
    for (index, wait_ms) in [(1, 0), (2, 10)] {
        let guard = CountsDrop(drops.clone());
        let task = env.spawn("endless", async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        if wait_ms > 0 {
            env.sleep(ms(wait_ms)).await;
        }
        assert_eq!(drops.load(Ordering::SeqCst), index - 1);
        task.cancel();
        soon(&env, task.join()).await;
        assert_eq!(drops.load(Ordering::SeqCst), index);
        task.cancel();
    }
}

/// The others go on.
pub async fn a_panic_ends_one_task(World { env, .. }: World) {
    let drops = Arc::new(AtomicU32::new(0));
    let guard = CountsDrop(drops.clone());
    let task = env.spawn("panics", async move {
        let _guard = guard;
        panic!("on purpose, for the conformance suite");
    });
    soon(&env, task.join()).await;
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    let task = env.spawn("lives", async {});
    soon(&env, task.join()).await;
}

/// Results come back; a panic is contained.
pub async fn computes(World { env, .. }: World) {
    let sums: Vec<_> = (0..50_u64).map(|n| env.compute(move || (0..n * 1000).sum::<u64>())).collect();
    for (n, sum) in (0..50_u64).zip(sums) {
        assert_eq!(soon(&env, sum).await, Some((0..n * 1000).sum::<u64>()));
    }
    let none = env.compute(|| -> u32 { panic!("on purpose, for the conformance suite") });
    assert_eq!(soon(&env, none).await, None);
    assert_eq!(soon(&env, env.compute(|| 5)).await, Some(5));
}

/// Two streams of one purpose are two streams.
pub async fn seeds_differ(World { env, .. }: World) {
    let mut seen = std::collections::BTreeSet::new();
    for purpose in ["one", "one", "two", "two"] {
        assert!(seen.insert(env.rng(purpose).u64(..)));
    }
}
