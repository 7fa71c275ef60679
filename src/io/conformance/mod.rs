//! What every implementation of the seam has to do, as test cases that take an [`Env`](crate::Env).
//!
//! One suite runs against the real world (`io::real`) and the simulated one (`sim/tests/suite/conformance.rs`), so that the
//! two cannot drift apart. [`conformance_cases!`](crate::conformance_cases) lists the cases.

pub mod disk;
pub mod net;
pub mod time;
mod world;

pub use world::World;

/// Calls `$callback!` with the names of all cases as `module::function`.
#[macro_export]
macro_rules! conformance_cases {
    ($callback:ident) => {
        $callback! {
            disk::reads_back_what_was_written,
            disk::reads_end_at_the_end_of_the_file,
            disk::writes_thousands_of_buffers_at_once,
            disk::opens_as_the_mode_says,
            disk::dropped_futures_complete,
            disk::operations_overlap,
            disk::allocates_and_cuts,
            disk::renames_over_and_keeps_open_files,
            disk::removed_files_stay_readable_while_open,
            disk::lists_sorted,
            disk::creates_and_removes_trees,
            disk::syncs_files_and_directories,
            disk::locks_a_directory_once,
            disk::knows_the_space,
            net::both_ends_know_their_addresses,
            net::shutdown_is_end_of_file_and_the_other_direction_goes_on,
            net::dropping_both_halves_ends_the_connection,
            net::closing_with_unread_data_resets,
            net::abort_fails_both_halves_and_resets_the_peer,
            net::writing_to_a_closed_peer_fails,
            net::connecting_to_nobody_is_refused,
            net::an_address_is_bound_once,
            net::accept_can_be_dropped,
            net::a_slow_reader_holds_the_writer_back,
            net::short_reads_and_vectored_writes_keep_order,
            net::resolves_addresses,
            time::the_clock_is_monotonic,
            time::sleeps_end_in_order,
            time::dropped_and_repolled_sleeps_do_no_harm,
            time::the_wall_clock_goes_on,
            time::tasks_are_joined,
            time::cancelled_tasks_are_dropped,
            time::a_panic_ends_one_task,
            time::computes,
            time::seeds_differ,
        }
    };
}
