//! Changes to a running relay.

use std::io;
use std::net::SocketAddr;

use mio::net::TcpListener;
use mio::{Interest, Token};

use super::super::connection::{DIALER, TARGET};
use super::super::fabric::LinkId;
use super::super::nanos;
use super::super::request::{LinkTraffic, Request, Route};
use super::super::settings::Gate;
use super::{Door, Due, Engine, LISTENERS, PipeId, limit_buffers};

impl Engine {
    /// Carries out pending requests. Returns false to stop.
    pub(super) fn take_requests(&mut self) -> bool {
        // The caller may have given up; the answer is then dropped.
        while let Ok(request) = self.requests.try_recv() {
            let now = self.timer.now();
            match request {
                Request::AddRoute(route, answer) => {
                    let _ = answer.send(self.add_route(route));
                }
                Request::ChangeLink(from, to, settings, answer) => {
                    let link = self.fabric.link(from, to);
                    self.fabric.change_link(link, settings, now);
                    self.go_on();
                    let _ = answer.send(());
                }
                Request::ChangeInterface(node, settings, answer) => {
                    self.fabric.change_interface(node, settings, now);
                    self.go_on();
                    let _ = answer.send(());
                }
                Request::ChangeGate(from, to, gate, answer) => {
                    let link = self.fabric.link(from, to);
                    let _ = answer.send(self.change_gate(link, gate));
                }
                Request::Traffic(answer) => {
                    let ways = self.fabric.ways().map(|(_, way)| way);
                    let traffic =
                        ways.map(|way| LinkTraffic { from: way.from, to: way.to, traffic: way.traffic });
                    let _ = answer.send(traffic.collect());
                }
                Request::Stop => return false,
            }
        }
        true
    }

    fn add_route(&mut self, route: Route) -> io::Result<SocketAddr> {
        let there = self.fabric.link(route.from, route.to);
        let back = self.fabric.link(route.to, route.from);
        self.doors.push(Door { route, address: route.listen, listener: None, links: [there, back] });
        let door = self.doors.len() - 1;
        let opened = self.open_door(door);
        if opened.is_err() {
            self.doors.pop();
        }
        opened
    }

    /// Opens a route's listener.
    fn open_door(&mut self, door: usize) -> io::Result<SocketAddr> {
        let mut listener = TcpListener::bind(self.doors[door].address)?;
        // Accepted sockets inherit their buffer sizes from the listener, in time for the window that they
        // announce.
        limit_buffers(&listener)?;
        let address = listener.local_addr()?;
        self.poll.registry().register(&mut listener, Token(LISTENERS + door), Interest::READABLE)?;
        self.doors[door].address = address;
        self.doors[door].listener = Some(listener);
        Ok(address)
    }

    fn change_gate(&mut self, link: LinkId, gate: Gate) -> io::Result<()> {
        let before = self.fabric.way(link).gate;
        self.fabric.change_gate(link, gate);
        if gate == Gate::Reject {
            self.refuse(link);
        }
        let mut reopened = Ok(());
        if before == Gate::Reject && gate != Gate::Reject {
            reopened = self.open_doors();
        }
        if gate == Gate::Open {
            self.send_again(link);
        }
        reopened
    }

    /// Resets the link's connections in either direction and refuses new ones, since a connection needs both
    /// directions.
    fn refuse(&mut self, link: LinkId) {
        for door in self.doors.iter_mut().filter(|door| door.links.contains(&link)) {
            door.listener = None;
        }
        for pipe in self.users(link) {
            self.kill(pipe);
        }
    }

    fn open_doors(&mut self) -> io::Result<()> {
        for door in 0..self.doors.len() {
            let Door { listener, links, .. } = &self.doors[door];
            let is_refused = links.iter().any(|link| self.fabric.way(*link).gate == Gate::Reject);
            if listener.is_none() && !is_refused {
                self.open_door(door)?;
            }
        }
        Ok(())
    }

    /// Handles the opening of a link: sends what was held back, and completes connections that waited for it.
    fn send_again(&mut self, link: LinkId) {
        let now = self.timer.now();
        let there_takes = nanos(self.fabric.way(link).link.delay);
        for user in self.users(link) {
            let Some(connection) = self.connection(user) else { continue };
            for pipe in connection.pipes.iter_mut().filter(|pipe| pipe.link == link) {
                pipe.arrive_from(now + there_takes);
            }
            if connection.ends[TARGET].socket.is_none() {
                self.appoint(now + there_takes, Due::Dial(user));
            }
            self.serve(user);
            self.serve(user.back());
        }
    }

    /// The connections that use a link, in either direction.
    fn users(&self, link: LinkId) -> Vec<PipeId> {
        let places = self.connections.iter().enumerate();
        let users = places.filter_map(|(place, connection)| connection.as_ref().map(|it| (place, it)));
        users
            .filter(|(_, connection)| connection.pipes.iter().any(|pipe| pipe.link == link))
            .map(|(place, connection)| PipeId { place, birth: connection.birth, from: DIALER })
            .collect()
    }

    /// Serves every pace and connection, since what was slow may be fast now.
    fn go_on(&mut self) {
        for pace in 0..self.fabric.paces() {
            self.call(pace);
        }
        for place in 0..self.connections.len() {
            let Some(connection) = &self.connections[place] else { continue };
            let pipe = PipeId { place, birth: connection.birth, from: DIALER };
            self.serve(pipe);
            self.serve(pipe.back());
        }
    }
}
