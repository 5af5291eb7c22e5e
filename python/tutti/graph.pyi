# For those who check types where the package tutti-torch is not installed.
from tutti._captured import *
