//! Which of several servers carries out what of a file: decided from settings and the file alone, so that all clients agree.

use std::hash::{Hash, Hasher};

use iogate_core::hash::IdHasher;
use iogate_core::wire::Identity;
use iogate_core::{ClientId, Layout};

/// Which of several servers carries out a read or a write. Names and attributes go through one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// One, for everything: see [`RemoteOptions::server`](super::RemoteOptions::server).
    #[default]
    Client,
    /// One for each client process ([`Origin::client`](iogate_engine::Origin::client)).
    Process,
    /// One for each file.
    File,
    /// One for each stripe target: the server `target mod servers`.
    Target,
}

/// The servers of one file's transfers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    spread: Spread,
    servers: usize,
    /// The one on which it was opened.
    first: usize,
    /// The server of [`Spread::File`].
    home: usize,
    layout: Layout,
}

impl Route {
    /// Of a file that was opened on server `first` of so many.
    pub(super) fn new(
        spread: Spread,
        servers: usize,
        first: usize,
        identity: Identity,
        layout: Layout,
    ) -> Route {
        let mut hasher = IdHasher::default();
        identity.hash(&mut hasher);
        let home = (hasher.finish() % servers as u64) as usize;
        Route { spread, servers, first, home, layout }
    }

    /// The file's stripes.
    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The server to which a process's transfers of a byte go, and the offset up to which that holds.
    pub(super) fn server_of(&self, offset: u64, process: ClientId) -> (usize, u64) {
        match self.spread {
            Spread::Client => (self.first, u64::MAX),
            Spread::Process => (process.0 as usize % self.servers, u64::MAX),
            Spread::File => (self.home, u64::MAX),
            Spread::Target => (self.server_of_target(offset), self.layout.stripe_end(offset)),
        }
    }

    /// The server that all appends to the file go to, whoever sends them: it makes them follow each other.
    pub(super) fn append_server(&self) -> usize {
        match self.spread {
            Spread::Client => self.first,
            Spread::Process | Spread::File => self.home,
            Spread::Target => self.server_of_target(0),
        }
    }

    /// Whether data of the file may have gone through a server, whichever handle or process of this machine has written it.
    pub(super) fn may_use(&self, server: usize) -> bool {
        match self.spread {
            Spread::Client => server == self.first,
            Spread::File => server == self.first || server == self.home,
            Spread::Process | Spread::Target => true,
        }
    }

    fn server_of_target(&self, offset: u64) -> usize {
        self.layout.target_of(offset).0 as usize % self.servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: usize = 3;
    const LAYOUT: Layout = Layout { first_target: 1, stripe_bytes: 10, targets: 4 };

    fn routes(inode: u64) -> impl Iterator<Item = Route> {
        let identity = Identity { inode, generation: 1 };
        let spreads = [Spread::Client, Spread::Process, Spread::File, Spread::Target];
        spreads.into_iter().flat_map(move |spread| {
            (0..SERVERS).map(move |first| Route::new(spread, SERVERS, first, identity, LAYOUT))
        })
    }

    #[test]
    fn whatever_a_transfer_goes_through_is_synced() {
        for route in (0..20).flat_map(routes) {
            assert!(route.may_use(route.append_server()), "{route:?}");
            for (offset, process) in (0..100).flat_map(|offset| (0..7).map(move |process| (offset, process)))
            {
                let (server, end) = route.server_of(offset, ClientId(process));
                assert!(server < SERVERS && end > offset && route.may_use(server), "{route:?}");
                assert_eq!(route.server_of(end - 1, ClientId(process)).0, server, "{route:?}");
            }
        }
    }

    #[test]
    fn records_go_to_one_server_whichever_the_file_was_opened_on() {
        for inode in 0..20 {
            for spread in [Spread::Process, Spread::File, Spread::Target] {
                let mut servers: Vec<usize> = routes(inode)
                    .filter(|route| route.spread == spread)
                    .map(|route| route.append_server())
                    .collect();
                servers.dedup();
                assert_eq!(servers.len(), 1, "{spread:?}");
            }
        }
    }

    #[test]
    fn files_and_targets_are_dealt_out() {
        let files: std::collections::BTreeSet<usize> = (0..20)
            .flat_map(routes)
            .filter(|route| route.spread == Spread::File)
            .map(|file| file.home)
            .collect();
        assert_eq!(files.len(), SERVERS);
        let striped = routes(0).find(|route| route.spread == Spread::Target).unwrap();
        let servers = [0, 10, 20, 30, 40].map(|offset| striped.server_of(offset, ClientId(0)));
        assert_eq!(servers, [(1, 10), (2, 20), (0, 30), (0, 40), (1, 50)]);
    }
}
