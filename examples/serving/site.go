package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// site is a door that listens, and its clients.
type site struct {
	*door
	address string
	server  http.Server
	client  http.Client
	clients sync.WaitGroup
	tally   tally
	left    int // requests that were there when it closed
}

// open opens doors on the loopback interface. With an error it returns those that are open.
func open(configs ...doorConfig) (sites []*site, err error) {
	for _, c := range configs {
		d, err := newDoor(c)
		if err != nil {
			return sites, err
		}
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return sites, err
		}
		s := &site{door: d, address: listener.Addr().String(), tally: tally{slo: c.slo}}
		// Clients give an idle connection up long before the server does, which could be just when they send on it.
		s.server = http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Minute}
		s.client = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000, IdleConnTimeout: 10 * time.Second}}
		s.group.Go(d.loop)
		s.group.Go(func() { _ = s.server.Serve(listener) }) // until it is shut down
		sites = append(sites, s)
	}
	return sites, nil
}

// ServeHTTP answers a whole number with what the model makes of it.
func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 20))
	input, wrong := strconv.Atoi(string(body))
	if err != nil || wrong != nil {
		http.Error(w, "want a whole number", http.StatusBadRequest)
		return
	}
	a, err := s.submit(r.Context(), input)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	case a.refused != "":
		http.Error(w, string(a.refused), http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprint(w, a.output)
	}
}

// ask sends a number and says whether it was refused. An answer that is not its square is an error.
func (s *site) ask(number int) (refused bool, err error) {
	resp, err := s.client.Post("http://"+s.address, "text/plain", strings.NewReader(strconv.Itoa(number)))
	if err != nil {
		return false, err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusServiceUnavailable &&
		(resp.StatusCode != http.StatusOK || string(text) != strconv.Itoa(number*number)) {
		err = fmt.Errorf("%s: %d got status %d, %q", s.name, number, resp.StatusCode, text)
	}
	return resp.StatusCode == http.StatusServiceUnavailable, err
}

// play sends a request to all sites at each of the times, and returns how many it sent until ctx ended.
func play(ctx context.Context, sites []*site, times []time.Duration) int {
	start := time.Now()
	for i, at := range times {
		due := start.Add(at)
		select {
		case <-ctx.Done():
			return i
		case <-time.After(time.Until(due)):
		}
		for _, s := range sites {
			s.clients.Go(func() {
				refused, err := s.ask(i)
				s.tally.note(time.Since(due), refused, err)
			})
		}
	}
	return len(times)
}

// shut closes sites to each of which so many requests were sent.
func shut(sites []*site, sent int) error {
	errs := make([]error, len(sites))
	var group sync.WaitGroup
	for i, s := range sites {
		group.Go(func() { errs[i] = s.shut(sent) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// shut lets in what was sent and nothing more, has it answered, and then has the replicas drained.
func (s *site) shut(sent int) error {
	for s.state().arrived+s.tally.failures() < sent {
		time.Sleep(time.Millisecond)
	}
	now := s.state()
	s.left = now.waiting + now.running
	s.group.Go(func() {
		s.clients.Wait()
		s.client.CloseIdleConnections() // else the server waits a while for those that were never used
	})
	err := s.server.Shutdown(context.Background()) // no handler waits for ever
	return errors.Join(err, s.close())
}
