module example.com/benthos

go 1.21

require github.com/benthosdev/benthos/v4 v4.27.0
