//! Listening where another one of a test has listened before.

use std::io;
use std::thread;
use std::time::Duration;

/// Binds, and tries again for half a minute while somebody else has the address: whoever asks for any port, in a test beside this
/// one, may get the one that a peer has just left and is to come back to.
///
/// # Panics
/// If it cannot be bound.
pub fn bound<T>(bind: impl Fn() -> io::Result<T>) -> T {
    for _ in 0..600 {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                thread::sleep(Duration::from_millis(50));
            }
            Err(error) => panic!("cannot listen: {error}"),
            Ok(listener) => return listener,
        }
    }
    panic!("the address is in use for half a minute")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_address_is_waited_for() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let waiting = thread::spawn(move || {
            bound(|| {
                let bound = TcpListener::bind(address);
                let _ = tell.send(bound.is_ok());
                bound
            })
        });
        assert!(!told.recv().unwrap(), "it is in use");
        drop(other);
        assert_eq!(waiting.join().unwrap().local_addr().unwrap(), address);
    }
}
