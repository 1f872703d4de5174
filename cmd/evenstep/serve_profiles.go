package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/evenstep/evenstep/core/profile"
	"github.com/evenstep/evenstep/core/service"
)

const (
	// profilesEvery is what of the profiles a core may lose that is killed.
	profilesEvery = time.Minute
	// heldWait bounds the wait for a file that was not asked for.
	heldWait = 100 * time.Millisecond
)

// keepProfiles opens the profiles of a core. A shared core holds the file; a private one, and one whose file was not asked
// for and is held by another, share it. Only a file that was asked for can fail: without one, what is learned is kept in
// memory.
func (f *serveFlags) keepProfiles(log hclog.Logger) (*profile.Keeper, error) {
	path, asked, err := profilesPath(f.profiles)
	if err != nil {
		log.Warn("profiles are not kept: " + err.Error())
		return nil, nil
	}
	var held *profile.HeldError
	if !f.private {
		wait := heldWait
		if asked {
			wait = profilesWait
		}
		k, err := profile.Hold(path, wait, time.Now)
		switch {
		case err == nil:
			if all := k.Profiles(); len(all) > 0 {
				log.Info("profiles are back", "file", path, "profiles", len(all), "last_seen", lastSeen(all))
			}
			return k, nil
		case asked && errors.As(err, &held):
			return nil, unreachable(fmt.Errorf("--profiles: %w", err))
		case asked:
			return nil, badInput(fmt.Errorf("--profiles: %w", err))
		}
	}
	// Whoever holds it may let go of it before the first flush.
	k, err := profile.Share(path, time.Now)
	if err != nil && !errors.As(err, &held) {
		log.Warn("profiles are not kept: " + err.Error())
		return nil, nil
	}
	return k, nil
}

func lastSeen(all []profile.Entry) (last time.Time) {
	for _, e := range all {
		if e.LastSeen.After(last) {
			last = e.LastSeen
		}
	}
	return last
}

// learn gives the balancer the profiles and records into them each minute, and when a job is done that was registered,
// until ctx ends; done records the rest.
func learn(ctx context.Context, b *service.Balancer, k *profile.Keeper, log hclog.Logger) (done func()) {
	if k == nil {
		b.Profiles = profile.NewBook(time.Now)
		return func() {}
	}
	b.Profiles = k
	soon := make(chan struct{}, 1)
	b.Keep = func() {
		select {
		case soon <- struct{}{}:
		default: // it is about to be done
		}
	}
	told := false
	tell := func(err error) {
		if err != nil && !told {
			told = true
			log.Warn("profiles wait for a later try: " + err.Error())
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(profilesEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.Record()
				tell(k.Flush())
			case <-soon:
				tell(k.Flush())
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		<-ended
		b.Record()
		tell(k.Close())
	}
}
