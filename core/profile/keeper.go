package profile

import (
	"errors"
	"io/fs"
	"sync"
	"time"
)

// lockWait bounds the wait for others who have the file.
const lockWait = time.Second

// Keeper brings a book and a file together: it reads the file at the start, and Flush puts into it what was recorded
// since. It either holds the file, or opens it for each flush, so that several share it.
type Keeper struct {
	*Book
	path string

	mu   sync.Mutex // one flush at a time
	held *File      // nil where the file is shared
}

// Hold opens the file for as long as the keeper lives, waiting so long for others to let go of it. The error is a
// *HeldError where another process holds it.
func Hold(path string, wait time.Duration, now func() time.Time) (*Keeper, error) {
	f, err := OpenFile(path, false, wait)
	if err != nil {
		return nil, err
	}
	k := &Keeper{Book: NewBook(now), path: path, held: f}
	if err := k.Read(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return k, nil
}

// Share reads the file and lets go of it. The keeper is good whatever the error is: without what could not be read, until
// a flush succeeds.
func Share(path string, now func() time.Time) (*Keeper, error) {
	k := &Keeper{Book: NewBook(now), path: path}
	f, err := OpenFile(path, true, lockWait)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return k, nil
	case err != nil:
		return k, err
	}
	defer f.Close()
	return k, k.Read(f)
}

// Flush puts into the file what was recorded since the last one, and reads what others put there. It waits for the file
// for at most a second; after an error, all is kept for the next one.
func (k *Keeper) Flush() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	taken := k.take()
	if len(taken) == 0 {
		return nil
	}
	all, err := k.merge(taken)
	if err != nil {
		k.giveBack(taken)
		return err
	}
	k.load(all)
	return nil
}

func (k *Keeper) merge(later map[Key]Profile) (all map[Key]Profile, err error) {
	f := k.held
	if f == nil {
		if f, err = OpenFile(k.path, false, lockWait); err != nil {
			return nil, err
		}
		defer f.Close()
	}
	return f.Merge(later)
}

// Close flushes and lets go of the file.
func (k *Keeper) Close() error {
	err := k.Flush()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held != nil {
		err = errors.Join(err, k.held.Close())
		k.held = nil
	}
	return err
}
