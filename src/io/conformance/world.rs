//! What a case gets, and what many cases do with it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Env, File, OpenMode};

/// What a case gets.
#[derive(Clone)]
pub struct World {
    /// The world under test.
    pub env: Env,
    /// An empty directory of the case's own.
    pub dir: PathBuf,
    /// An address to listen on.
    pub ip: IpAddr,
}

/// Waits for `future`; panics when it takes ten seconds.
pub(super) async fn soon<T>(env: &Env, future: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        output = future => output,
        () = env.sleep(Duration::from_secs(10)) => panic!("ten seconds are over"),
    }
}

/// Opens a file that the case knows can be opened.
pub(super) async fn open(env: &Env, path: &Path, mode: OpenMode) -> File {
    match env.disk().open(path, mode).await {
        Ok(file) => file,
        Err(error) => panic!("opening {} as {mode:?}: {error}", path.display()),
    }
}
