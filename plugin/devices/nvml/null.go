//go:build !linux || !cgo

package nvml

import (
	"errors"

	"github.com/evenstep/evenstep/plugin/devices"
)

// null stands for the driver where its library cannot be called.
type null struct{}

func newDriver(string) driver { return null{} }

func (null) count() (int, error) {
	return 0, errors.New("evenstep-devices-nvml was built without cgo, which the driver's library needs")
}

func (null) read(int) ([]devices.Device, error) { return nil, nil }
