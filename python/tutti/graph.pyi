# For those who check types where the package libtutti-torch is not installed.
from tutti._captured import *
